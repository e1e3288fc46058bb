"""Brackets and index ops beyond the op table: generated keys, assignment, order, bad indices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import numbagrad as ng
from numbagrad.autograd import gradgradcheck
from numbagrad.errors import GradError

SHAPE = (3, 4, 2)


def tensor(array, **options):
    return ng.tensor(np.asarray(array), **options)


ints = st.integers(-2, 1)
slices = st.builds(
    slice,
    st.none() | st.integers(-5, 5),
    st.none() | st.integers(-5, 5),
    st.none() | st.integers(1, 3),
)
basic = ints | slices | st.none() | st.just(...)
index_arrays = st.lists(st.integers(-2, 1), min_size=0, max_size=3).map(
    lambda values: np.array(values, np.int64)
)


@st.composite
def basic_keys(draw):
    key = draw(st.lists(basic, max_size=5))
    while sum(k is ... for k in key) > 1:
        key.remove(...)
    while sum(k is not None and k is not ... for k in key) > 3:
        key.pop()
    return tuple(key)


@settings(max_examples=200, deadline=None)
@given(basic_keys())
def test_basic_keys_are_views_with_gradient(key):
    array = np.arange(24.0).reshape(SHAPE)
    x = tensor(array, requires_grad=True)
    out = x[key]
    assert tuple(out.shape) == array[key].shape
    assert np.array_equal(out.detach().numpy(), array[key])
    assert out.numel() == 0 or np.shares_memory(out.detach().numpy(), x.detach().numpy())
    (out * out.detach()).sum().backward()
    expected = np.zeros(SHAPE)
    expected[key] = array[key]
    assert np.array_equal(x.grad.numpy(), expected)
    copy = tensor(array)
    copy[key] = 7
    array[key] = 7
    assert np.array_equal(copy.numpy(), array)


@st.composite
def advanced_keys(draw):
    """Up to three index tensors or masks of one length among slices and None; never ints, whose
    place differs between NumPy and PyTorch."""
    length = draw(st.integers(1, 3))
    key = []
    used = 0
    while used < 3 and draw(st.booleans()) | (used == 0):
        kind = draw(st.sampled_from(["index", "slice", "mask", "none"]))
        if kind == "none":
            key.append(None)
            continue
        if kind == "index":
            key.append(draw(st.lists(ints, min_size=length, max_size=length).map(np.array)))
        elif kind == "mask":
            mask = np.zeros(SHAPE[used], bool)
            mask[: min(length, SHAPE[used])] = True
            if mask.sum() != length:
                mask[:] = False
                mask[-1] = True  # one entry broadcasts
            key.append(mask)
        else:
            key.append(draw(slices))
        used += 1
    return tuple(key)


@settings(max_examples=150, deadline=None)
@given(advanced_keys())
def test_advanced_keys(key):
    array = np.arange(24.0).reshape(SHAPE)
    x = tensor(array, requires_grad=True)
    ours = tuple(tensor(k) if isinstance(k, np.ndarray) else k for k in key)
    out = x[ours]
    assert tuple(out.shape) == array[key].shape
    assert np.array_equal(out.detach().numpy(), array[key])
    (out * out.detach()).sum().backward()
    expected = np.zeros(SHAPE)
    np.add.at(expected, key, array[key])
    assert np.array_equal(x.grad.numpy(), expected)
    value = np.arange(float(out.numel())).reshape(out.shape)
    copy = tensor(array)
    copy[ours] = tensor(value)
    again = x.detach().clone().requires_grad_() * 1
    again[ours] = tensor(value)  # the recorded way writes the same
    array[key] = value
    assert np.array_equal(copy.numpy(), array) and np.array_equal(again.detach().numpy(), array)


def test_ints_among_tensors_are_selected_first_as_in_pytorch():
    torch = pytest.importorskip("torch")
    array = np.arange(24.0).reshape(SHAPE)
    rows = np.array([1, 0, 1])
    for key in [(0, slice(None), rows), (rows, slice(None), 1), (slice(None), 0, rows)]:
        theirs = torch.tensor(array)[
            tuple(torch.tensor(k) if isinstance(k, np.ndarray) else k for k in key)
        ]
        ours = tensor(array)[tuple(tensor(k) if isinstance(k, np.ndarray) else k for k in key)]
        assert tuple(ours.shape) == tuple(theirs.shape) and ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("key", [True, False, np.bool_(True)])
def test_a_bool_is_a_mask_of_no_dimensions(key):
    x = ng.arange(3)
    assert x[key].tolist() == np.arange(3)[key].tolist()


def test_only_the_entry_that_stands_gets_a_gradient():
    """PyTorch gives it to both; the difference quotient says otherwise."""
    x = ng.zeros(3, dtype=ng.double, requires_grad=True)
    value = tensor([1.0, 2.0, 3.0], requires_grad=True)

    def write(x, value):
        y = x * 1
        y[tensor([1, 1, 0])] = value
        return y * tensor([5.0, 7.0, 9.0])

    assert ng.autograd.gradcheck(write, (x, value))
    assert ng.autograd.gradgradcheck(lambda x, v: write(x, v) ** 2, (x, value))
    index = tensor([[1, 1, 0]])
    assert ng.autograd.gradcheck(
        lambda x, v: x.reshape(1, 3).scatter(1, index, v.reshape(1, 3)) ** 2, (x, value)
    )


def test_assignment_moves_history_and_version():
    x = ng.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x[0] = 1.0
    y = x * 2
    view = y[:2]
    scale = tensor(np.float32(3.0), requires_grad=True)
    y[1] = scale
    assert y._version == 1
    (view * tensor(np.array([1, 10], np.float32))).sum().backward()
    assert x.grad.tolist() == [2, 0, 0] and scale.grad.item() == 10


def test_assignment_from_the_same_memory_does_not_smear():
    x = ng.arange(5)
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3]


def test_assignment_converts_and_drops_leading_ones():
    x = ng.zeros(2, 3, dtype=ng.long)
    x[0] = ng.ones(1, 3) * 2.7
    x[1, :2] = [4, 5]
    assert x.tolist() == [[2, 2, 2], [4, 5, 0]]


def test_the_last_of_repeated_indices_stands_and_repeats_add_in_order():
    rng = np.random.default_rng(0)
    index = tensor(rng.integers(0, 5, 20_000))
    values = ng.tensor(rng.standard_normal((20_000, 70)).astype(np.float32))
    x = ng.zeros(5, 70)
    x[index] = values
    last = [np.flatnonzero(index.numpy() == i)[-1] for i in range(5)]
    assert np.array_equal(x.numpy(), values.numpy()[last])
    one = ng.zeros(5, 70).index_add(0, index, values)
    expected = np.zeros((5, 70), np.float32)
    for i, at in enumerate(index.tolist()):
        expected[at] += values.numpy()[i]
    assert np.array_equal(one.numpy(), expected)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda x: x[tensor([0, 3])], "index 3 is out of bounds for dimension 0 with size 3"),
        (lambda x: x[:, tensor([4])], "index 4 is out of bounds for dimension 1 with size 4"),
        (lambda x: x[tensor([0]), tensor([-5])], "index -5 is out of bounds for dimension 1"),
        (lambda x: x[0, 4], "index 4 is out of bounds for dimension 1 with size 4"),
        (lambda x: x[..., 9], "index 9 is out of bounds for dimension 2 with size 2"),
        (lambda x: x[2**70], "out of bounds"),
        (lambda x: x["a"], "indices must be"),
        (lambda x: x[..., ...], "single ellipsis"),
        (lambda x: x[tensor([[True] * 3] * 3)], "shape of the mask"),
        (lambda x: x.index_select(0, tensor([-1])), "index -1 is out of bounds"),
        (lambda x: x.gather(0, tensor(np.full((1, 1, 1), 3))), "index 3 is out of bounds"),
        (lambda x: ng.nn.functional.embedding(tensor([3]), x[:, :, 0]), "index out of range"),
    ],
)
def test_index_errors(wrong, words):
    with pytest.raises(IndexError, match=words):
        wrong(ng.zeros(SHAPE))


def test_padding_row_gets_no_gradient():
    weight = ng.ones(3, 2, dtype=ng.double, requires_grad=True)
    index = tensor([0, 2, 2, 1])
    embed = ng.nn.functional.embedding
    embed(index, weight, padding_idx=2).sum().backward()
    assert weight.grad.tolist() == [[1, 1], [1, 1], [0, 0]]
    assert ng.autograd.gradgradcheck(lambda w: embed(index, w) ** 2, (weight,))


def test_masks_as_pytorch_reads_them():
    x = ng.arange(6.0).reshape(2, 3)
    assert x[x > 2].tolist() == [3, 4, 5]
    x[x > 4] = 0
    assert x.masked_scatter(x == 0, ng.tensor([8.0, 9.0])).tolist() == [[8, 1, 2], [3, 4, 9]]
    assert ng.nonzero(x > 3).tolist() == [[1, 1]]
    assert [i.tolist() for i in ng.where(x > 2)] == [[1, 1], [0, 1]]


def test_iteration_and_index_of_tensor():
    assert [row.tolist() for row in ng.eye(2)] == [[1, 0], [0, 1]]
    assert ng.arange(4)[ng.tensor(2)].item() == 2
    assert ng.arange(4)[[3, 1]].tolist() == [3, 1]


def test_an_index_changed_before_backward_is_noticed():
    index = tensor([0, 1])
    x = ng.ones(3, requires_grad=True)
    y = x[index].sum()
    index[0] = 2
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_products_scattered_with_zeros():
    """A zero alone in its place gets the product of the others; two have no second derivative."""
    x = ng.tensor([2.0, 3.0], dtype=ng.double, requires_grad=True)
    index = ng.tensor([0, 0, 1])
    src = ng.tensor([0.0, 5.0, 4.0], dtype=ng.double, requires_grad=True)
    ng.scatter_reduce(x, 0, index, src, "prod").sum().backward()
    assert src.grad.tolist() == [10.0, 0.0, 3.0] and x.grad.tolist() == [0.0, 4.0]
    assert gradgradcheck(lambda x, s: ng.scatter_reduce(x, 0, index, s, "prod"), (x, src))
    src = ng.tensor([0.0, 0.0, 4.0], dtype=ng.double, requires_grad=True)
    out = ng.scatter_reduce(x, 0, index, src, "prod").sum()
    with pytest.raises(GradError, match="Double backward is unsupported"):
        ng.autograd.grad(out, src, create_graph=True)
    assert ng.autograd.grad(out, src)[0].tolist() == [0.0, 0.0, 3.0]


@pytest.mark.parametrize("dim,shape", [(0, (7, 5)), (1, (4, 7)), (1, (3, 6, 4)), (-1, (3, 4, 6))])
def test_an_index_expanded_over_slices_is_that_of_slices(dim, shape):
    """As graphs have it: ``index[:, None].expand_as(messages)``, eagerly and in a compiled call."""
    random, m = np.random.default_rng(0), 9
    sizes, along = list(shape), [1] * len(shape)
    sizes[dim] = along[dim] = m
    x, source = (ng.tensor(random.normal(size=s)).requires_grad_() for s in (shape, sizes))
    index = ng.tensor(random.integers(0, shape[dim], m)).reshape(along)

    def function(x, source, index):
        written = x.detach().clone().scatter_add_(dim, index, source.detach())
        found = [x.scatter_add(dim, index, source), x.gather(dim, index), written]
        found += [x.scatter(dim, index, source)]
        return found + [x.scatter_reduce(dim, index, source, how) for how in ("mean", "amax")]

    def run(call, index):
        x.grad = source.grad = None
        found = call(x, source, index)
        sum([(y**3).sum() for y in found if y.requires_grad]).backward()
        return [t.detach().numpy().copy() for t in (*found, x.grad, source.grad)]

    whole = run(function, index.expand(sizes).contiguous())
    for call in (function, ng.compile(function)):
        for ours, theirs in zip(run(call, index.expand(sizes)), whole, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    wrong = ng.full(along, shape[dim]).expand(sizes)
    with pytest.raises(IndexError, match=rf"gather: index {shape[dim]} is out of bounds"):
        x.gather(dim, wrong)
    negative = ng.full(along, -1).expand(sizes)
    for write in (x.scatter_add, x.scatter, x.detach().clone().scatter_add_):
        with pytest.raises(IndexError, match=r"scatter.*: index -1 is out of bounds"):
            write(dim, negative, source.detach())
    for write in (x.index_add, x.index_copy):
        with pytest.raises(IndexError, match=r"index_.*: index -1 is out of bounds"):
            write(dim, negative.reshape(-1)[:m], source)


@pytest.mark.parametrize("call", range(20))  # remembered from the sixteenth on
def test_index_put_with_indices_without_dims(call):
    x, one, two = ng.zeros(2, 3), ng.tensor(1), ng.tensor(2)
    assert x.index_put((one, two), ng.tensor(5.0)).tolist() == [[0.0] * 3, [0.0, 0.0, 5.0]]
    assert x.index_put((one,), ng.tensor([1.0, 2.0, 3.0])).tolist() == [[0.0] * 3, [1.0, 2.0, 3.0]]
    assert ng.zeros(3).index_put_([one], ng.tensor(5.0)).tolist() == [0.0, 5.0, 0.0]
    yes, no = ng.tensor(True), ng.tensor(False)
    assert x.index_put((yes,), ng.tensor(5.0)).tolist() == [[5.0] * 3] * 2
    assert x.index_put((no,), ng.tensor(5.0)).tolist() == [[0.0] * 3] * 2
    both = x.index_put((ng.tensor([1]), yes), ng.tensor(5.0))
    assert both.tolist() == [[0.0] * 3, [5.0] * 3]


def test_windows_of_nothing():
    x = ng.tensor([1.0, 2.0, 3.0], requires_grad=True)
    windows = x.unfold(0, 0, 1)
    assert windows.shape == (4, 0) and ng.tensor(4.0).unfold(0, 0, 1).shape == (0,)
    windows.sum().backward()
    assert x.grad.tolist() == [0.0] * 3
