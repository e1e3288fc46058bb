"""Eigenvalues and singular values by LAPACK, which compiled loops call for each matrix of a stack.

LAPACK's columns are our rows: of symmetric matrices the other triangle is read, of others the left
vectors are the right ones. Whoever calls these has called ``load_lapack``. Start at ``eigh``.
"""

from __future__ import annotations

import numpy as np

from ..inner import keep
from ..intrinsics import address
from ..lapack_library import dgesdd, dsyevd, sgesdd, ssyevd
from ..machine import kernel

__all__ = ["eigh", "svd"]

LOWER, UPPER, VALUES, VECTORS = (ord(letter) for letter in "LUNV")


@kernel(outputs=3, allocates=True)
def eigh(values, info, x, upper, vectors):
    """The eigenvalues of symmetric matrices, one triangle of which is read.

    values (b, n) C; info (b) int32 C: 0, or that they were not found; x (b, n, n) C, lost: its rows
    are the eigenvectors with ``vectors``.
    """
    count, n = values.shape
    sizes = np.array([n, -1, -1], np.int32)
    letters = np.array([VECTORS if vectors else VALUES, LOWER if upper else UPPER], np.uint8)
    room, whole = np.empty(1, x.dtype), np.empty(1, np.int32)
    for call in range(count + 1):  # the first asks how much room it takes
        b = max(0, call - 1)
        size, letter = address(sizes), address(letters)
        given = letter, letter + 1, size, address(x[b]), size, address(values[b])
        rooms = address(room), size + 4, address(whole), size + 8, address(info) + 4 * b
        if x.itemsize == 4:
            ssyevd(*given, *rooms)
        else:
            dsyevd(*given, *rooms)
        if call == 0:
            sizes[1], sizes[2] = int(room[0]), whole[0]
            room, whole = np.empty(sizes[1], x.dtype), np.empty(sizes[2], np.int32)
    keep(room)
    keep(whole)
    keep(sizes)
    keep(letters)


@kernel(outputs=3, allocates=True)
def svd(s, info, u, vh, x, job):
    """The singular values of matrices, and vectors; ``x = u diag(s) vh``.

    s (b, k) C; info (b) int32 C as ``eigh``; x (b, m, n) C, lost; job: the letter by which LAPACK
    knows what is asked. u (b, m, m or k) C, vh (b, n or k, n) C; of any other shape for no vectors.
    """
    count, m, n = x.shape
    columns = max(1, u.shape[2])
    sizes = np.array([n, m, columns, -1], np.int32)
    letters = np.array([job], np.uint8)
    room, whole = np.empty(1, x.dtype), np.empty(8 * min(m, n), np.int32)
    for call in range(count + 1):
        b = max(0, call - 1)
        size, letter = address(sizes), address(letters)
        given = letter, size, size + 4, address(x[b]), size, address(s[b])
        left = address(vh) + b * vh.strides[0], size
        right = address(u) + b * u.strides[0], size + 8
        rooms = address(room), size + 12, address(whole), address(info) + 4 * b
        if x.itemsize == 4:
            sgesdd(*given, *left, *right, *rooms)
        else:
            dgesdd(*given, *left, *right, *rooms)
        if call == 0:
            sizes[3] = int(room[0])
            room = np.empty(sizes[3], x.dtype)
    keep(room)
    keep(whole)
    keep(sizes)
    keep(letters)
