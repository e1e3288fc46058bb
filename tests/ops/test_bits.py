"""``x.view(dtype)``: the bits of a tensor as another dtype."""

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.errors import GradError, RecordingError, ShapeError

DTYPES = [ng.float32, ng.float64, ng.float16, ng.bfloat16, ng.int64, ng.int32, ng.int16, ng.int8]
DTYPES += [ng.uint8]


@pytest.mark.parametrize("old", DTYPES, ids=str)
@pytest.mark.parametrize("new", DTYPES, ids=str)
def test_bits_are_those_in_memory(old, new):
    x = (ng.arange(32).reshape(4, 8) % 7).to(old)
    y = x.view(new)
    assert y.dtype is new and y.shape == (4, 8 * x.element_size() // y.element_size())
    assert y.data_ptr() == x.data_ptr() and y.is_contiguous()
    back = y.view(dtype=old)
    assert back.tolist() == x.tolist()
    assert x.view(ng.uint8).tolist() == y.view(ng.uint8).tolist()
    y[1] = 0
    assert x[1].tolist() == [0] * 8 and x._version == y._version == 1


def test_strides():
    x = ng.arange(24, dtype=ng.int32).reshape(4, 6)
    for y in (x.t(), x[:, 1:4], x[::2], x.t()[1:]):
        assert y.view(ng.float32).stride() == y.stride()
        assert y.view(ng.float32).view(ng.int32).tolist() == y.tolist()
    assert x[:, 2:4].view(ng.int64).stride() == (3, 1)
    assert (
        x[:, 2:4].view(ng.int64).tolist()
        == np.ascontiguousarray(x.numpy()[:, 2:4]).view(np.int64).tolist()
    )
    assert ng.tensor(1.0).view(ng.int32).item() == 0x3F800000
    assert ng.zeros(0, 4).view(ng.int16).shape == (0, 8)


def test_what_cannot_be_seen_so():
    x = ng.zeros(4, 6)
    for y, dtype in ((x.t(), ng.int16), (x[:, :3], ng.int64), (x[:, 1:3], ng.int64)):
        with pytest.raises(ShapeError, match=r"view: rows of .* Call contiguous\(\) first"):
            y.view(dtype)
    with pytest.raises(ShapeError, match=r"no dimensions.*unsqueeze"):
        ng.tensor(1.0).view(ng.int8)
    w = ng.ones(2, requires_grad=True)
    with pytest.raises(GradError, match=r"have no gradient. Call detach\(\)"):
        w.view(ng.float64)
    assert not w.view(ng.int32).requires_grad
    with pytest.raises(RecordingError, match="view: the bits"):
        ng.compile(lambda x: x.view(ng.int32))(x)
    with pytest.raises(TypeError):
        x.view(ng.int32, ng.int32)
    with pytest.raises(TypeError):
        x.view("int32")


def test_like_torch():
    torch = pytest.importorskip("torch")
    x = ng.randn(3, 4)
    y = torch.from_numpy(x.numpy().copy())
    for name in "int32 int16 uint8 int64 float64 float16".split():
        mine, other = x.view(getattr(ng, name)), y.view(getattr(torch, name))
        assert mine.shape == tuple(other.shape)
        np.testing.assert_array_equal(mine.numpy(), other.numpy())
