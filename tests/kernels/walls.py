"""Memory that ends at a wall: ``BEFORE_A_WALL`` is text for tests in processes of their own."""

BEFORE_A_WALL = """
import ctypes, mmap
import numpy as np

page = mmap.PAGESIZE
libc = ctypes.CDLL(None, use_errno=True)


def before_a_wall(values):
    # A copy that ends where memory does: to read one number more is a segmentation fault.
    size = -(-values.nbytes // page) * page
    whole = mmap.mmap(-1, size + page)
    start = np.frombuffer(whole, np.uint8).ctypes.data
    assert libc.mprotect(ctypes.c_void_p(start + size), page, 0) == 0
    array = np.frombuffer(whole, np.uint8, values.nbytes, size - values.nbytes)
    array[...] = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
    return array.view(values.dtype).reshape(values.shape)
"""
