"""Convolutions over bands of the image, which take what they have from unfolded ones elsewhere."""

from __future__ import annotations

import itertools
import math

import numba
import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.kernels import machine
from numbagrad.kernels.amx import load_amx
from numbagrad.kernels.cpu import banded, conv
from numbagrad.kernels.vectors import VECTOR_BYTES
from numbagrad.ops.conv_form import BANDED, DEPTHWISE, OF_INPUT, PRODUCTS, UNIT, Form

pytestmark = pytest.mark.skipif(not VECTOR_BYTES, reason="bands are for products of vectors")

SHAPES = [
    # Images, groups, channels of a group in and out, space, kernel, stride, padding, dilation.
    (2, 1, 3, 5, (1, 1, 40), (1, 1, 3), (1, 1, 1), (0, 0, 1), (1, 1, 1)),
    (3, 1, 4, 2, (1, 1, 150), (1, 1, 5), (1, 1, 2), (0, 0, 3), (1, 1, 2)),
    (17, 2, 2, 9, (1, 1, 11), (1, 1, 4), (1, 1, 3), (0, 0, 2), (1, 1, 1)),
    (1, 1, 6, 7, (1, 16, 17), (1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1)),
    (9, 1, 20, 16, (1, 5, 4), (1, 3, 3), (1, 2, 2), (0, 1, 1), (1, 1, 1)),
    (40, 3, 2, 3, (1, 4, 4), (1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1)),
    (2, 1, 5, 3, (1, 9, 20), (1, 2, 5), (1, 3, 1), (0, 4, 0), (1, 1, 3)),
    (2, 1, 2, 18, (1, 7, 8), (1, 1, 2), (1, 2, 3), (0, 1, 0), (1, 1, 1)),
    (2, 1, 40, 9, (1, 70, 60), (1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1)),
    (3, 1, 3, 4, (5, 6, 7), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
    (17, 1, 4, 5, (4, 3, 5), (2, 3, 2), (2, 2, 2), (1, 1, 1), (1, 2, 1)),
    (1, 1, 12, 3, (20, 24, 25), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
    (0, 1, 3, 4, (1, 6, 6), (1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1)),
]
BY_UNIT = [
    # Of whole and broken tiles, several blocks of lines, of planes, and of images.
    (8, 1, 70, 35, (1, 14, 14), (1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1)),
    (3, 2, 33, 17, (1, 28, 28), (1, 5, 5), (1, 2, 2), (0, 2, 2), (1, 1, 1)),
    (3, 1, 64, 64, (1, 20, 30), (1, 3, 3), (1, 1, 1), (0, 0, 0), (1, 1, 1)),
    (9, 1, 48, 32, (1, 7, 7), (1, 3, 3), (1, 1, 1), (0, 1, 1), (1, 1, 1)),
    (2, 1, 96, 20, (1, 60, 9), (1, 4, 2), (1, 1, 3), (0, 3, 1), (1, 2, 1)),
    (1, 1, 33, 16, (1, 1, 700), (1, 1, 9), (1, 1, 1), (0, 0, 70), (1, 1, 20)),
    (2, 1, 40, 16, (9, 10, 11), (3, 2, 3), (2, 1, 2), (1, 0, 1), (1, 1, 1)),
    # More zeros than taps reach; taps far apart; fewer images in the last block.
    (1, 1, 16, 16, (1, 1, 62), (1, 1, 3), (1, 1, 1), (0, 0, 33), (1, 1, 1)),
    (2, 1, 32, 24, (1, 13, 13), (1, 3, 3), (1, 1, 1), (0, 4, 3), (1, 1, 1)),
    (1, 1, 16, 12, (1, 1, 286), (1, 1, 7), (1, 1, 1), (0, 0, 99), (1, 1, 33)),
    (1, 1, 32, 32, (1, 1, 400), (1, 1, 9), (1, 1, 1), (0, 0, 0), (1, 1, 20)),
    (17, 1, 32, 32, (1, 9, 9), (1, 3, 3), (1, 1, 1), (0, 0, 0), (1, 1, 1)),
]
TOLERANCES = {"float64": 1e-11, "float32": 1e-4, "bfloat16": 4e-2, "float16": 5e-3}


def _arrays(shape, dtype):
    """A convolution's arguments, its result's shape and its form, as kernels take it."""
    n, groups, inputs, outputs, space, kernel, stride, padding, dilation = shape
    random = np.random.default_rng(0)
    small = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, s, p, d in zip(space, kernel, stride, padding, dilation, strict=True)
    ]
    sizes = [
        (n, groups * inputs, *space),
        (groups * outputs, inputs, *kernel),
        (n, groups * outputs, *small),
        (groups * outputs,),
        (groups * inputs,),
    ]
    given = [random.normal(size=s) for s in sizes]
    given[1] /= math.sqrt(inputs * math.prod(kernel))
    tensors = [ng.tensor(a).to(getattr(ng, dtype)) for a in given]
    return tensors, (groups, *stride, *padding, *dilation)


def _launched(kernel, like, *arguments):
    out = ng.full(like.shape, math.nan, dtype=like.dtype)
    arrays = [a._array if isinstance(a, ng.Tensor) else a for a in arguments]
    machine.launch(kernel, out._array, *arrays)
    return out


needs_unit = pytest.mark.skipif(not load_amx(), reason="no matrix unit, or not for us")


def _of_input(kernels):
    return OF_INPUT if kernels is UNIT else 0


def _calls(form):
    """Each of three kernels, with its bias and without."""
    return [
        (lambda k, x, w, g, b, c: _launched(k[0], g, x, w, b, 1, *form)),
        (lambda k, x, w, g, b, c: _launched(k[0], g, x, w, b, 0, *form)),
        (lambda k, x, w, g, b, c: _launched(k[1], x, g, w, c, 1 + _of_input(k), *form)),
        (lambda k, x, w, g, b, c: _launched(k[1], x, g, w, c, _of_input(k), *form)),
        (lambda k, x, w, g, b, c: _launched(k[2], w, g, x, *form)),
    ]


@pytest.mark.parametrize("dtype", list(TOLERANCES))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bands_give_what_columns_give(shape, dtype):
    given, form = _arrays(shape, dtype)
    wide = [t.double() for t in given]
    for call in _calls(form):
        found, expected = call(BANDED, *given).double().numpy(), call(PRODUCTS, *wide).numpy()
        scale = np.abs(expected).max(initial=1)
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCES[dtype] * scale)


@needs_unit
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES + BY_UNIT, ids=str)
def test_the_unit_gives_what_columns_give(shape, dtype):
    given, form = _arrays(shape, dtype)
    wide = [t.double() for t in given]
    for call in _calls(form):
        found, expected = call(UNIT, *given).double().numpy(), call(PRODUCTS, *wide).numpy()
        close = 2e-6 if dtype == "float32" else 2**-8
        scale = np.abs(expected).max(initial=1)
        np.testing.assert_allclose(found, expected, rtol=0, atol=close * scale)


@needs_unit
@pytest.mark.parametrize("shape", [SHAPES[4], SHAPES[9], *BY_UNIT[:5]], ids=str)
def test_what_the_unit_cannot_hold_is_multiplied_as_ever(shape):
    """Infinite, NaN, large and small numbers, one of each or all of them."""
    (x, weight, g, bias, back), form = _arrays(shape, "float32")
    single = x.clone(), weight.clone(), g.clone(), bias, back
    single[0].view(-1)[5], single[2].view(-1)[7] = math.inf, math.nan
    all_of = [(x * k, weight, g * j, bias * k, back * j) for k, j in ((1e25, 1e9), (1e-26, 1e-9))]
    for given in (single, *all_of):
        wide = [t.double() for t in given]
        for call in _calls(form):
            found, expected = call(UNIT, *given).double().numpy(), call(PRODUCTS, *wide).numpy()
            finite = np.isfinite(expected) & (np.abs(expected) < 3e38)
            assert np.array_equal(np.isfinite(found), finite)
            scale = np.abs(expected[finite]).max(initial=0)
            np.testing.assert_allclose(found[finite], expected[finite], rtol=0, atol=1e-5 * scale)


@needs_unit
def test_infinite_numbers_are_seen_by_their_taps_alone():
    for dtype in (ng.float32, ng.bfloat16):
        x = ng.zeros(24, 32, 8, 8, dtype=dtype)
        x[0, 0, 0, 7] = math.inf
        for padding, expected in ((0, [0, 0, math.inf]), (1, [0, math.inf, math.inf])):
            weight = ng.zeros(32, 32, 3, 3, dtype=dtype).requires_grad_()
            nn.functional.conv2d(x, weight, padding=padding).sum().backward()
            assert weight.grad[0, 0, 0].tolist() == expected


@needs_unit
def test_channels_of_small_numbers_keep_their_digits():
    """In the gradient of the weight, each 16 of either side; and threads decide about no bit."""
    random = np.random.default_rng(0)
    x, g = (random.normal(size=s).astype(np.float32) for s in ((8, 64, 8, 8), (8, 80, 8, 8)))
    before = numba.get_num_threads()
    for first in range(0, 64, 16):
        small = x.copy(), g.copy()
        small[0][:, first : first + 16] *= np.float32(1e-37)
        small[1][:, 64 - first : 80 - first] *= np.float32(1e-34)
        for k, changed in enumerate(((small[0], g), (x, small[1]))):
            found = []
            for threads in (1, before):
                machine.set_threads(threads)
                try:
                    weight = ng.zeros(80, 64, 3, 3).requires_grad_()
                    out = nn.functional.conv2d(ng.tensor(changed[0]), weight, padding=1)
                    out.backward(ng.tensor(changed[1]))
                finally:
                    machine.set_threads(before)
                found.append(weight.grad.double().numpy())
            np.testing.assert_array_equal(*found)
            weight = ng.zeros(80, 64, 3, 3, dtype=ng.float64).requires_grad_()
            out = nn.functional.conv2d(ng.tensor(changed[0]).double(), weight, padding=1)
            out.backward(ng.tensor(changed[1]).double())
            part = np.s_[64 - first : 80 - first] if k else np.s_[:, first : first + 16]
            expected = weight.grad.numpy()[part]
            close = 2e-6 * np.abs(expected).max()
            np.testing.assert_allclose(found[0][part], expected, rtol=0, atol=close)


@needs_unit
def test_sums_of_the_unit_are_nearer_than_those_of_vectors():
    ones = (1, 1, 1)
    shape = 4, 1, 256, 32, (1, 14, 14), (1, 3, 3), ones, (0, 1, 1), ones
    given, form = _arrays(shape, "float32")
    wide = [t.double() for t in given]
    _, forward, _, of_input, of_weight = _calls(form)
    for call in (forward, of_input, of_weight):
        expected = call(PRODUCTS, *wide).numpy()
        errors = [
            np.square(call(kernels, *given).double().numpy() - expected).mean()
            for kernels in (UNIT, BANDED)
        ]
        assert errors[0] < errors[1]


@needs_unit
def test_parts_that_the_unit_multiplies():
    """``set_float32_matmul_precision`` is for convolutions too."""
    given, form = _arrays(BY_UNIT[0], "float32")
    wide = [t.double() for t in given]
    errors = []
    try:
        for precision in ("highest", "high", "medium"):
            ng.set_float32_matmul_precision(precision)
            for call in _calls(form):
                found, expected = call(UNIT, *given).numpy(), call(PRODUCTS, *wide).numpy()
                errors.append(np.abs(found - expected).max() / np.abs(expected).max())
    finally:
        ng.set_float32_matmul_precision("highest")
    assert max(errors[:5]) < 2e-6 < max(errors[5:10]) < 5e-5 < max(errors[10:]) < 1e-2


def test_infinite_weights_meet_no_zeros_outside():
    """In the gradient of the input; a place that no tap reaches stays finite."""
    for shape in (SHAPES[4], SHAPES[6], SHAPES[9]):
        (x, weight, g, _, back), form = _arrays(shape, "float64")
        weight.reshape(-1)[3] = math.inf
        weight.reshape(-1)[-1] = math.nan
        for biased in (0, 1):
            arguments = x, g, weight, back, biased, *form
            found = _launched(banded.banded_input_grad, *arguments).numpy()
            expected = _launched(conv.conv_input_grad, *arguments).numpy()
            np.testing.assert_allclose(found, expected, atol=1e-12)
            assert np.isfinite(found).any() and not np.isfinite(found).all()


def _form(x, weight, **options):
    """The Form of a convolution of tensors, and whether its kernels are those of bands."""
    seen = []
    known = Form.kernel_of

    def noted(form, which, x):
        seen.append((which, known(form, which, x)))
        return seen[-1][1]

    Form.kernel_of = noted
    try:
        out = getattr(nn.functional, f"conv{x.ndim - 2}d")(x, weight, **options)
        out.sum().backward()
    finally:
        Form.kernel_of = known
    return dict(seen)


def test_which_convolutions_go_over_bands(monkeypatch):
    """Where no unit multiplies matrices, and where one does."""
    monkeypatch.setattr("numbagrad.ops.conv_form.load_amx", lambda: False)

    def of(n, inputs, outputs, space, kernel, groups=1, dtype=ng.float32, **options):
        x = ng.zeros(n, inputs, *space, dtype=dtype).requires_grad_()
        weight = ng.zeros(outputs, inputs // groups, *kernel, dtype=dtype).requires_grad_()
        found = _form(x, weight, groups=groups, **options)
        return [BANDED.index(found[i]) if found[i] in BANDED else None for i in range(3)]

    assert of(20, 16, 17, (9, 8), (3, 3), padding=1) == [0, 1, 2]
    assert of(20, 16, 17, (65,), (3,), padding=1, dtype=ng.bfloat16) == [0, 1, 2]
    assert of(3, 1, 19, (11, 12), (5, 5)) == [None] * 3
    assert of(3, 16, 19, (11, 12), (1, 1)) == [None] * 3
    assert of(24, 16, 66, (7, 7), (3, 3), padding=1) == [0, None, 2]
    assert of(1, 16, 21, (7, 9), (3, 3), padding=1) == [0, None, None]
    assert of(8, 512, 512, (7, 7), (3, 3), padding=1) == [0, 1, None]
    if load_amx():
        monkeypatch.setattr("numbagrad.ops.conv_form.load_amx", lambda: True)
        for dtype in (ng.float32, ng.bfloat16):
            x = ng.zeros(24, 32, 7, 7, dtype=dtype).requires_grad_()
            for kernel, kernels in ((3, UNIT), (1, PRODUCTS)):
                weight = ng.zeros(32, 32, kernel, kernel, dtype=dtype).requires_grad_()
                found = _form(x, weight, padding=kernel // 2)
                assert found == dict(enumerate(kernels))
        assert of(24, 32, 32, (7, 7), (3, 3), padding=1, dtype=ng.float16) == [0, 1, 2]
    x, weight = ng.zeros(2, 9, 5, 7).requires_grad_(), ng.zeros(9, 1, 3, 3).requires_grad_()
    for dtype in (ng.float32, ng.bfloat16):
        given = [t.detach().to(dtype).requires_grad_() for t in (x, weight)]
        assert tuple(_form(*given, groups=9).values()) == DEPTHWISE


def test_gradients_of_every_order():
    random = np.random.default_rng(0)
    for stride in (1, 2):
        sizes = (3, 8, 6, 12 + stride), (16, 8, 3, 3), (16,)
        given = [ng.tensor(random.normal(size=s)).requires_grad_() for s in sizes]

        def function(x, weight, bias, stride=stride):
            return nn.functional.conv2d(x, weight, bias, stride, padding=1)

        assert ng.autograd.gradcheck(function, given, fast_mode=True)
        assert ng.autograd.gradgradcheck(function, given, fast_mode=True)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_threads_and_steps_change_no_bit(dtype):
    """Eagerly and in a compiled step, on one thread and on several."""
    random = np.random.default_rng(0)
    kind = getattr(ng, dtype)

    def given():
        sizes = (20, 32, 14, 13), (32, 32, 3, 3), (32,), (48, 32, 3, 3)
        return [ng.tensor(random.normal(size=s)).to(kind).requires_grad_() for s in sizes]

    tensors = given()

    def step(x):
        for t in tensors[1:]:
            t.grad = None
        y = nn.functional.conv2d(x, *tensors[1:3], padding=1)
        y = nn.functional.conv2d(y, tensors[3], stride=2, padding=1)
        (y.float() * y.float()).mean().backward()
        return y

    compiled = ng.compile(step)
    before, found = numba.get_num_threads(), []
    for threads, call in itertools.product((before, 1), (step, compiled)):
        machine.set_threads(threads)
        try:
            out = call(tensors[0].detach())
        finally:
            machine.set_threads(before)
        found.append([out.detach().float().numpy(), *[t.grad.float().numpy() for t in tensors[1:]]])
    for other in found[1:]:
        for x, y in zip(found[0], other, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-6 if dtype == "float32" else 1e-2)
    for first, second in ((0, 2), (1, 3)):
        for x, y in zip(found[first], found[second], strict=True):
            np.testing.assert_array_equal(x, y)


def test_a_kernel_that_covers_the_image_is_a_matrix():
    """The first layer of a generator, the last of a discriminator, and what gates channels."""
    random = np.random.default_rng(0)
    for space, images in (((4, 3), 5), ((1, 1), 3), ((2, 2), 0)):
        sizes = (images, 6, *space), (7, 6, *space), (7,), (images, 7, 1, 1), (6,)
        x, weight, bias, g, back = (
            ng.tensor(random.normal(size=s)).requires_grad_() for s in sizes
        )
        out = nn.functional.conv2d(x, weight, bias)
        assert out.shape == g.shape
        expected = np.einsum("nchw,ochw->no", x.detach().numpy(), weight.detach().numpy())
        expected += bias.detach().numpy()
        np.testing.assert_allclose(out.detach().numpy()[..., 0, 0], expected, rtol=1e-12)
        given = nn.functional.conv_transpose2d(g, weight, back)
        assert given.shape == x.shape
        expected = np.einsum("noab,ochw->nchw", g.detach().numpy(), weight.detach().numpy())
        expected += back.detach().numpy()[:, None, None]
        np.testing.assert_allclose(given.detach().numpy(), expected, rtol=1e-12)
        for function, arguments in (
            (nn.functional.conv2d, (x, weight, bias)),
            (nn.functional.conv_transpose2d, (g, weight, back)),
        ):
            if images:
                assert ng.autograd.gradcheck(function, arguments)
                assert ng.autograd.gradgradcheck(function, arguments)
    x, weight = ng.ones(2, 3, 3), ng.ones(4, 2, 3, 3)
    assert nn.functional.conv2d(x, weight).tolist() == [[[18.0]]] * 4
    # Halves are rounded once, with their bias.
    x, bias = (ng.tensor(v, dtype=ng.bfloat16) for v in ([[[1.0078125]]], [-1.015625]))
    assert nn.functional.conv_transpose1d(x, x, bias).item() == 2**-14
