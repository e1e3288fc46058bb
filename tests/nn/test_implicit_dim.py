"""softmax and its kin without ``dim``: PyTorch's choice of it, and its warning."""

import pytest

import numbagrad as ng


@pytest.mark.parametrize("rank", range(5))
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "softmin"])
def test_the_dim_is_chosen_by_the_number_of_dimensions(name, rank):
    x = ng.arange(float(2**rank)).reshape((2,) * rank)
    function = getattr(ng.nn.functional, name)
    dim = 0 if rank in (0, 1, 3) else 1
    kind = {"softmax": "Softmax", "log_softmax": "LogSoftmax", "softmin": "Softmin"}[name]
    for found in (function, getattr(ng.nn, kind)()):
        with pytest.warns(UserWarning, match=f"{name}: Implicit dimension choice.*dim={dim}"):
            assert found(x).tolist() == function(x, dim).tolist()
    torch = pytest.importorskip("torch")
    with pytest.warns(UserWarning, match="Implicit dimension choice"):
        theirs = getattr(torch.nn.functional, name)(torch.tensor(x.numpy()))
    assert function(x, dim).flatten().tolist() == pytest.approx(theirs.flatten().tolist())


def test_a_dim_that_is_given_is_taken_silently(recwarn):
    x = ng.tensor([[1, 2], [3, 4]])
    out = ng.nn.functional.softmax(x, -1, dtype=ng.float64)
    assert out.dtype is ng.float64 and out.sum(1).tolist() == [1.0, 1.0] and not recwarn
