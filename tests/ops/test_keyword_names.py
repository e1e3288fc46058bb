"""Keywords and older forms of PyTorch's functions, compared with PyTorch where it is there."""

from __future__ import annotations

import io
import warnings

import pytest
from test_names import plain

import numbagrad as ng

LINES = """
    x.split(split_size=1)
    x.split(split_size=[1, 2], dim=1)
    L.split(x, split_size_or_sections=2, dim=1)
    x.swapaxes(axis0=0, axis1=1)
    L.swapaxes(input=x, axis0=0, axis1=-1)
    x.swapaxes_(axis0=0, axis1=1)
    x.swapdims(dim0=0, dim1=1)
    v.expand(size=(2, 3))
    v.repeat(repeats=(2, 1))
    v.tile(dims=(2,))
    L.trapezoid(y=x, x=v)
    L.trapezoid(y=x, dx=2.0, dim=0)
    L.trapz(y=v, x=v)
    L.cumulative_trapezoid(y=x, x=v)
    L.gather(x, 1, L.tensor([[0], [1]]), sparse_grad=False)
    x.gather(dim=1, index=L.tensor([[0], [1]]), sparse_grad=False)
    L.einsum(x, [0, 1], [1, 0])
    L.einsum(x, [0, 1], x, [2, 1], [2, 0])
    L.einsum(x, [0, 1], v, [1])
    L.einsum(x, [30, 1])
    L.einsum(x, [..., 0], v, [0], [...])
    F.normalize(x, dim=0, out=L.empty(2, 3))
    x.add(2, x)
    L.add(x, 2, x)
    L.sub(x, 2.5, x)
    x.sub(2, x)
    [x.add(1, 2), L.sub(x, 1, 2), x.add_(1, 2)]
    [x.add_(-0.5, x * 2), x]
    [x.sub_(3, x), x]
    [v.addcmul_(2, v, v + 1), v]
    [v.addcdiv_(2, v, v + 1), v]
    [v.addcdiv_(-0.5, v[:1] * 1, v + 1), v]
    v.addcmul(2, v, v + 1)
    v.addcdiv(2, v, v + 1)
    L.addcdiv(v, 2, v, v + 1)
    [(w := v.clone().requires_grad_()).addcdiv(2, w, w + 1).sum().backward(), w.grad][1]
""".strip().split("\n")


@pytest.mark.parametrize("line", [line.strip() for line in LINES])
def test_a_line_gives_what_pytorch_gives(line):
    torch = pytest.importorskip("torch")
    found = []
    for lib in (ng, torch):
        x = lib.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.5]])
        names = {"L": lib, "F": lib.nn.functional, "x": x, "v": lib.tensor([3.0, 1.0, 2.0])}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(plain(eval(line, names)))
    assert found[0] == found[1]


def test_older_forms_warn_at_the_users_line():
    x = ng.ones(3)
    for call in (
        lambda: x.add_(2, x),
        lambda: ng.sub(x, 2, x),
        lambda: x.addcdiv_(2, x, x),
        lambda: ng.addcmul(x, 2, x, x),
    ):
        with pytest.warns(UserWarning, match="before the tensors? is deprecated") as told:
            call()
        assert told[0].filename == __file__


def test_older_forms_are_no_door_for_mistakes():
    x = ng.ones(3)
    for call in (
        lambda: x.add(x, x),
        lambda: x.add_(1, "2"),
        lambda: ng.sub(x, x, 2),
        lambda: ng.add(x, 2, x, out=ng.empty(3)),
        lambda: ng.mul(x, 2, x),
    ):
        with pytest.raises(TypeError, match="3 were given"):
            call()


def test_limits_of_random_numbers_by_keyword():
    for name in ("uniform_", "random_"):
        found = []
        for args, options in (((2, 9), {}), ((2,), {"to": 9}), ((), {"from": 2, "to": 9})):
            ng.manual_seed(0)
            found.append(getattr(ng.empty(50), name)(*args, **options).tolist())
        assert found[0] == found[1] == found[2] and 2 <= min(found[0]) <= max(found[0]) < 9
        assert max(getattr(ng.empty(50), name)(to=3).tolist()) < 3
        with pytest.raises(TypeError, match="unexpected keyword argument 'high'"):
            getattr(ng.empty(3), name)(high=3)
    with pytest.raises(TypeError, match="'from' needs 'to'"):
        ng.empty(3).random_(**{"from": 3})


def test_what_is_said_of_pickle_changes_nothing():
    file = io.BytesIO()
    ng.save([ng.ones(2)], file, None, pickle_protocol=4, _use_new_zipfile_serialization=False)
    file.seek(0)
    options = {"weights_only": None, "mmap": True, "encoding": "latin1", "pickle_module": None}
    (x,) = ng.load(f=file, map_location="cpu", **options)
    assert x.tolist() == [1.0, 1.0]
    with pytest.raises(TypeError, match="unexpected keyword argument 'weight_only'"):
        ng.load(file, weight_only=True)


def test_wrong_words_are_refused():
    x = ng.ones(2, 3)
    with pytest.raises(NotImplementedError, match="gather: gradients are dense"):
        x.gather(1, ng.tensor([[0], [1]]), sparse_grad=True)
    with pytest.raises(TypeError, match=r"split\(\) got an unexpected keyword"):
        x.split(size=1)
    with pytest.raises(TypeError, match="missing argument 'split_size_or_sections'"):
        x.split(dim=1)
    with pytest.raises(TypeError, match="got an unexpected keyword"):
        x.expand(2, 3, size=(2, 3))
    with pytest.raises(TypeError, match="expected a list of ints after each operand"):
        ng.einsum(x, x)
    with pytest.raises(ValueError, match="within the range"):
        ng.einsum(x, [0, 52])


def test_keywords_are_remembered():
    x, index = ng.arange(6.0).reshape(2, 3), ng.tensor([[0], [1]])
    for _ in range(40):
        assert x.repeat(repeats=(1, 1)).tolist() == x.tolist()
        assert x.gather(1, index, sparse_grad=False).tolist() == [[0.0], [4.0]]
        assert ng.einsum(x, [0, 1], [0]).tolist() == [3.0, 12.0]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert ng.ones(3).addcdiv_(2, ng.ones(3), ng.full((3,), 4.0)).tolist() == [1.5] * 3
