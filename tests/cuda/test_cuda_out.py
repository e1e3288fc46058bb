"""The keyword ``out`` on the device: written there, straight or by a copy."""

from __future__ import annotations

import pytest

import numbagrad as ng

pytestmark = pytest.mark.cuda

CALLS = {
    "exp": lambda f, x: f(x),
    "add": lambda f, x: f(x, x[0]),
    "mm": lambda f, x: f(x, x),
    "sort": lambda f, x: f(x, 1),
    "cumsum": lambda f, x: f(x, 0),
    "zeros": lambda f, x: f(3, 3),
}


@pytest.mark.parametrize("name", CALLS)
def test_out_is_written_where_it_lies(name):
    x = ng.tensor([[0.5, 0.25, 2.0], [1.0, -1.0, 0.0], [3.0, 0.125, 1.5]])
    expected = CALLS[name](getattr(ng, name), x)
    several = isinstance(expected, tuple)
    for size in ((3, 3), (0,)):
        made = [
            ng.empty(size, dtype=e.dtype, device="cuda")
            for e in (expected if several else (expected,))
        ]
        places = [m.data_ptr() for m in made]
        out = tuple(made) if several else made[0]
        found = CALLS[name](lambda *a, out=out: getattr(ng, name)(*a, out=out), x.to("cuda"))
        assert several or found is out
        assert size == (0,) or [m.data_ptr() for m in made] == places
        for target, value in zip(made, expected if several else (expected,), strict=True):
            assert target.is_cuda and target.shape == value.shape
            assert ng.allclose(target.to("cpu").double(), value.double(), atol=1e-6)


def test_out_may_be_the_input_and_may_not_lie_elsewhere():
    x = ng.tensor([1.0, 4.0, 9.0]).to("cuda")
    assert ng.sqrt(x, out=x) is x and x.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(RuntimeError, match="same device"):
        ng.sqrt(x, out=ng.empty(3))
    with pytest.raises(RuntimeError, match="some elements of the input tensor"):
        ng.neg(x[:2], out=x[1:])
    assert x.tolist() == [1.0, 2.0, 3.0]
