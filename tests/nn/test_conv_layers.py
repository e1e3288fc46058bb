"""What the rows of the layer table cannot say: running statistics, initialisation, mistakes."""

from __future__ import annotations

import numba
import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.kernels import machine

RUNNING = [
    ("BatchNorm1d", {}, (5, 3)),
    ("BatchNorm1d", {}, (4, 3, 2)),
    ("BatchNorm2d", {"momentum": 0.3}, (2, 3, 4, 2)),
    ("BatchNorm2d", {"momentum": None}, (2, 3, 4, 2)),
    ("BatchNorm3d", {"affine": False}, (2, 3, 2, 2, 2)),
    ("InstanceNorm2d", {"track_running_stats": True}, (2, 3, 4, 2)),
]


@pytest.mark.peer
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind,options,shape", RUNNING, ids=lambda v: str(v))
def test_running_statistics_are_torchs(kind, options, shape, compiled):
    torch = pytest.importorskip("torch")
    ours = getattr(nn, kind)(3, **options).double()
    theirs = getattr(torch.nn, kind)(3, **options).double()
    function = ng.compile(ours) if compiled else ours
    random = np.random.default_rng(0)
    for _ in range(3):
        x = random.normal(2.0, 3.0, shape)
        found, expected = function(ng.tensor(x)), theirs(torch.tensor(x))
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-9)
    state = theirs.state_dict()
    assert list(ours.state_dict()) == list(state)
    for name, value in ours.state_dict().items():
        assert str(value.dtype).rpartition(".")[2] == str(state[name].dtype).rpartition(".")[2]
        if name == "num_batches_tracked" and kind.startswith("Instance"):
            continue
        np.testing.assert_allclose(value.numpy(), state[name].numpy(), rtol=1e-12, err_msg=name)
    ours.eval()
    theirs.eval()
    expected = theirs(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(ours(ng.tensor(x)).detach().numpy(), expected, rtol=1e-9)


def test_statistics_move_the_version_and_stay_in_eval():
    module = nn.BatchNorm1d(2)
    x = ng.tensor([[1.0, 2.0], [3.0, 6.0]])
    version = module.running_mean._version
    module(x)
    assert module.running_mean._version > version
    np.testing.assert_allclose(module.running_mean.numpy(), [0.2, 0.4], rtol=1e-6)
    np.testing.assert_allclose(module.running_var.numpy(), [1.1, 1.7], rtol=1e-6)
    before = module.running_var.tolist()
    module.eval()(x)
    assert module.running_var.tolist() == before and module.num_batches_tracked.item() == 1
    module.track_running_stats = False
    module.reset_running_stats()  # of which there are none then, as in PyTorch
    assert module.running_var.tolist() == before
    module.track_running_stats = True
    module.reset_running_stats()
    assert module.running_var.tolist() == [1.0, 1.0] and module.num_batches_tracked.item() == 0


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", ["BatchNorm1d", "InstanceNorm1d"])
def test_tracking_that_is_turned_off_afterwards(kind, training):
    """The running statistics stay; while training they are not used either."""
    x = np.random.default_rng(0).normal(size=(4, 2, 3))

    def after(library):
        module = getattr(library.nn, kind)(2, track_running_stats=True, dtype=library.float64)
        module(library.tensor(x))
        module.train(training).track_running_stats = False
        out = module(library.tensor(x + 1))
        state = module.running_mean, module.running_var, module.num_batches_tracked
        return [each.detach().numpy() for each in (out, *state)]

    for ours, theirs in zip(after(ng), after(pytest.importorskip("torch")), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_convolutions_start_within_their_bound():
    module = nn.Conv2d(8, 400, 3, groups=2)
    bound = 1 / np.sqrt(4 * 9)
    for parameter in module.parameters():
        values = parameter.detach().numpy()
        assert np.abs(values).max() <= bound and values.std() > 0.5 * bound


@pytest.mark.parametrize(
    "make,words",
    [
        (lambda: nn.Conv2d(3, 4, 2, groups=2), "in_channels must be divisible by groups"),
        (lambda: nn.Conv2d(2, 3, 2, groups=2), "out_channels must be divisible by groups"),
        (lambda: nn.Conv2d(2, 2, 2, groups=0), "groups must be a positive integer"),
        (lambda: nn.Conv2d(2, 2, 2, padding_mode="sane"), "padding_mode"),
        (lambda: nn.ConvTranspose2d(2, 2, 2, padding_mode="reflect"), 'Only "zeros" padding mode'),
        (lambda: nn.Conv2d(2, 2, 2, padding="sane"), "Invalid padding string"),
        (lambda: nn.Conv2d(2, 2, 2, stride=2, padding="same"), "strided"),
        (lambda: nn.Conv2d(2, 2, (2, 2, 2)), "kernel_size"),
        (lambda: nn.GroupNorm(2, 3), "num_channels must be divisible by num_groups"),
        (lambda: nn.BatchNorm2d(3)(ng.ones(2, 3)), "expected 4D input"),
        (lambda: nn.InstanceNorm1d(3)(ng.ones(2, 4, 5)), "num_features"),
        (lambda: nn.ConvTranspose2d(1, 1, 2)(ng.ones(1, 1, 2, 2), (9, 9)), "output size"),
    ],
)
def test_mistakes_say_what_is_wrong(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_transposed_convolution_takes_the_size_it_should_give():
    module = nn.ConvTranspose2d(1, 1, 3, stride=2)
    x = ng.ones(1, 1, 4, 4)
    assert module(x).shape == (1, 1, 9, 9)
    assert module(x, output_size=(10, 9)).shape == (1, 1, 10, 9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sizes_that_need_several_blocks(dtype):
    """Blocks of lines, of channels, chunks of images: all must give what one matrix gives."""
    random = np.random.default_rng(0)
    x = random.normal(size=(3, 20, 40, 60)).astype(dtype)
    w = random.normal(size=(8, 20, 5, 5)).astype(dtype)
    given = [ng.tensor(a).requires_grad_() for a in (x, w)]
    out = nn.functional.conv2d(*given, padding=2)
    weights = random.normal(size=tuple(out.shape)).astype(dtype)
    gx, gw = ng.autograd.grad(out, given, ng.tensor(weights))
    padded = np.pad(x, [(0, 0), (0, 0), (2, 2), (2, 2)]).astype("float64")
    seen = np.lib.stride_tricks.sliding_window_view(padded, (5, 5), (2, 3))
    tolerance = {"rtol": 0, "atol": 2e-3 if dtype == "float32" else 1e-10}
    expected = np.einsum("nchwab,ocab->nohw", seen, w, optimize=True)
    np.testing.assert_allclose(out.detach().numpy(), expected, **tolerance)
    expected = np.einsum("nchwab,nohw->ocab", seen, weights, optimize=True)
    np.testing.assert_allclose(gw.numpy(), expected, **tolerance)
    around = np.pad(weights, [(0, 0), (0, 0), (2, 2), (2, 2)]).astype("float64")
    seen = np.lib.stride_tricks.sliding_window_view(around, (5, 5), (2, 3))
    expected = np.einsum("nohwab,ocab->nchw", seen, w[..., ::-1, ::-1], optimize=True)
    np.testing.assert_allclose(gx.numpy(), expected, **tolerance)


DEPTHWISE = [
    # Channels, kernels of each, sizes of space and of the kernel, stride, padding, dilation.
    (9, 1, (9,), (3,), 1, 1, 1),
    (3, 2, (40,), (5,), 2, 3, 2),
    (3, 1, (130,), (4,), 1, 0, 3),
    (12, 1, (16, 16), (3, 3), 1, 1, 1),
    (3, 4, (7, 9), (3, 2), 2, 1, 1),
    (3, 1, (17, 33), (5, 5), 3, 2, 1),
    (3, 2, (5, 20), (1, 3), 1, 4, 2),
    (2, 1, (3, 5, 6), (2, 3, 3), 1, 1, 1),
    (2, 3, (5, 4, 18), (3, 3, 3), 2, 2, 1),
]


@pytest.mark.parametrize("channels,several,space,taps,stride,padding,dilation", DEPTHWISE)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_kernel_for_each_channel(
    dtype, channels, several, space, taps, stride, padding, dilation
):
    """As many convolutions of one channel, which are products of matrices; also transposed."""
    random = np.random.default_rng(0)
    weight = random.normal(size=(channels * several, 1, *taps))
    given = random.normal(size=(2, channels, *space)), weight, random.normal(size=len(weight))
    x, w, b = [ng.tensor(a.astype(dtype)).requires_grad_() for a in given]
    form = {"stride": stride, "padding": padding, "dilation": dilation}
    one_way = getattr(nn.functional, f"conv{len(space)}d")
    other_way = getattr(nn.functional, f"conv_transpose{len(space)}d")
    tolerance = 2e-4 if dtype == "float32" else 1e-10

    def apart(function, x, per_channel, biases):
        """The same of one channel after the other."""
        parts = zip(x.chunk(channels, 1), w.chunk(channels), biases.chunk(channels), strict=True)
        assert x.shape[1] == channels * per_channel
        return ng.cat([function(*part, **form) for part in parts], 1)

    out = one_way(x, w, b, groups=channels, **form)
    g = ng.tensor(random.normal(size=tuple(out.shape)).astype(dtype)).requires_grad_()
    few = b[:channels]
    back = other_way(g, w, few, groups=channels, **form)
    for found, expected, inputs in [
        (out, apart(one_way, x, 1, b), (x, w, b)),
        (back, apart(other_way, g, several, few), (g, w, b)),
    ]:
        np.testing.assert_allclose(found.tolist(), expected.tolist(), atol=tolerance)
        cotangent = ng.tensor(random.normal(size=tuple(found.shape)).astype(dtype))
        for ours, theirs in zip(
            ng.autograd.grad(found, inputs, cotangent, retain_graph=True),
            ng.autograd.grad(expected, inputs, cotangent, retain_graph=True),
            strict=True,
        ):
            np.testing.assert_allclose(ours.tolist(), theirs.tolist(), atol=10 * tolerance)


def test_an_infinite_weight_of_a_channel_stays_where_its_tap_is():
    """The zeros around a gradient, and between its numbers, are not multiplied by it."""
    weight = np.ones((4, 1, 3, 3))
    weight[1, 0, 0, 0], weight[2, 0, 1, 1] = np.inf, np.nan
    g = ng.tensor(np.ones((2, 4, 3, 3)))
    for form in ({"stride": 2, "padding": 1}, {"stride": 1, "padding": 0}):
        found = nn.functional.conv_transpose2d(g, ng.tensor(weight), groups=4, **form)
        for channel in range(4):
            one = ng.tensor(weight[channel : channel + 1])
            expected = nn.functional.conv_transpose2d(g[:, channel : channel + 1], one, **form)
            np.testing.assert_array_equal(found[:, channel], expected[:, 0])


@pytest.mark.parametrize(
    "kind,shape,lead",
    [("Dropout1d", (20, 50, 3), 2), ("Dropout1d", (500, 3), 1), ("Dropout2d", (20, 50, 3, 2), 2)],
)
def test_dropout_of_channels(kind, shape, lead):
    module = getattr(nn, kind)(0.25)
    x = ng.ones(*shape).requires_grad_()
    out = module(x)
    out.sum().backward()
    flat = out.detach().numpy().reshape(int(np.prod(shape[:lead])), -1)
    assert (flat == flat[:, :1]).all()
    assert set(np.unique(flat)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((flat[:, 0] == 0).mean() - 0.25) < 0.08
    assert x.grad.tolist() == out.tolist()
    assert module.eval()(x) is x
    y = ng.ones(*shape)
    assert getattr(nn, kind)(0.5, inplace=True)(y) is y and 0.0 in y.reshape(-1).tolist()
    with pytest.raises(ValueError, match="between 0 and 1"):
        getattr(nn, kind)(1.5)
    with pytest.raises(ValueError, match=r"Expected .D or .D input"):
        module.train()(ng.ones(3))


def test_threads_change_no_bit_and_scratch_lives_long_enough():
    """The columns are large enough to be unmapped where they would be freed too early."""
    random = np.random.default_rng(0)
    shapes = (9, 6, 30, 30), (16, 6, 5, 5), (16, 1, 3, 3)
    given = [ng.tensor(random.normal(size=s).astype("float32")).requires_grad_() for s in shapes]

    def results():
        out = nn.functional.max_pool2d(nn.functional.conv2d(*given[:2], padding=2), 2)
        out = nn.functional.conv2d(out, given[2], padding=1, groups=16)
        out = nn.functional.batch_norm(out, None, None, training=True)
        return [out, *ng.autograd.grad((out * out * out).sum(), given)]

    before = numba.get_num_threads()
    many = results()
    try:
        machine.set_threads(1)
        one = results()
    finally:
        machine.set_threads(before)
    for x, y in zip(many, one, strict=True):
        np.testing.assert_array_equal(x.detach().numpy(), y.detach().numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_of_norms_by_given_statistics(dtype):
    """Of planes that a kernel scales, eagerly and in a step, on one thread and on several."""
    random = np.random.default_rng(0)
    kind = getattr(ng, dtype)
    for shape in ((5, 3, 7, 5), (2, 3, 40, 50), (64, 3, 16), (0, 3, 9)):
        arrays = [random.normal(size=s) for s in (shape, 3, 3, 3, shape)]
        variance = ng.tensor(random.random(3) + 0.5, dtype=kind)
        x, weight, bias, mean, g = (ng.tensor(a, dtype=kind) for a in arrays)
        x = ng.stack([x, x], -1)[..., 0]  # strided
        for t in (x, weight, bias):
            t.requires_grad_()

        def step(g, x=x, weight=weight, bias=bias, mean=mean, variance=variance):
            for t in (x, weight, bias):
                t.grad = None
            nn.functional.batch_norm(x, mean, variance, weight, bias).backward(g)

        along = (1, 3, *[1] * (len(shape) - 2))
        dims = (0, *range(2, len(shape)))
        center, scale = (t.double().numpy() for t in (mean, (variance + 1e-5).rsqrt()))
        away = (x.detach().double().numpy() - center.reshape(along)) * scale.reshape(along)
        given = g.double().numpy()
        factor = weight.detach().double().numpy() * scale
        expected = given * factor.reshape(along), (given * away).sum(dims), given.sum(dims)
        before = numba.get_num_threads()
        for call, threads in ((step, 1), (step, before), (ng.compile(step), before)):
            machine.set_threads(threads)
            try:
                call(g)
            finally:
                machine.set_threads(before)
            for t, true in zip((x, weight, bias), expected, strict=True):
                close = 1e-5 if dtype == "float32" else 1e-12
                np.testing.assert_allclose(t.grad.numpy(), true, rtol=close, atol=close * 40)
        if dtype == "float64" and shape[0] == 5:

            def function(x, weight, bias, mean=mean, variance=variance):
                return nn.functional.batch_norm(x, mean, variance, weight, bias)

            given = x.detach().clone().requires_grad_(), weight, bias
            assert ng.autograd.gradcheck(function, given, fast_mode=True)
            assert ng.autograd.gradgradcheck(function, given, fast_mode=True)


@pytest.mark.parametrize("of_layer", ["float32", "same"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_batch_norm_of_halves_is_rounded_once(dtype, of_layer):
    """Values, gradients of both orders and statistics are those of float32, rounded."""
    kind, random = getattr(ng, dtype), np.random.default_rng(0)
    other = kind if of_layer == "same" else ng.float32
    for shape, affine in (((4, 3, 9, 5), True), ((2, 3, 40, 30), False), ((5, 3, 16), True)):
        x = ng.tensor(random.normal(size=shape) + 1, dtype=kind)
        g = ng.tensor(random.normal(size=shape), dtype=kind)
        results = []
        for wide in (False, True):
            layer = nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d
            norm = layer(3, affine=affine).to(other)
            if affine:
                with ng.no_grad():
                    norm.weight.copy_(ng.tensor([0.5, -1.0, 2.0]))
                    norm.bias.copy_(ng.tensor([0.0, 1.0, -3.0]))
            norm = norm.float() if wide else norm
            given = (x.float() if wide else x.clone()).requires_grad_()
            above = g.float() if wide else g
            out = norm(given)
            assert out.dtype is (ng.float32 if wide else kind)
            found = [out, *norm.buffers(), *(norm.parameters() if affine else ())][:3]
            first = ng.autograd.grad(out, [given, *norm.parameters()], above, create_graph=True)
            (second,) = ng.autograd.grad((first[0].float() ** 2).sum(), [given])
            plain = norm(given.detach().requires_grad_())
            plain.backward(above)
            found += [*first, second, *[p.grad for p in norm.parameters()]]
            results.append([t.detach().float().numpy() for t in found])
        close = 2**-7 if dtype == "bfloat16" else 2**-10
        for ours, theirs in zip(*results, strict=True):
            scale = np.abs(theirs).max()
            np.testing.assert_allclose(ours, theirs, rtol=close, atol=close * scale)
        # The result itself: half a unit of its last place.
        np.testing.assert_allclose(results[0][0], results[1][0], rtol=close / 2, atol=1e-3)
