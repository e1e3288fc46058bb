"""Views whose base is changed in place, or that are: their gradients, beside torch's."""

from __future__ import annotations

import pytest

import numbagrad as ng

torch = pytest.importorskip("torch")

VIEWS = {
    "unsqueeze": lambda c: c.unsqueeze(-1),
    "None": lambda c: c[None, :, None],
    "expand": lambda c: c.unsqueeze(0).expand(3, -1),
    "expand of part": lambda c: c[1:].unsqueeze(1).expand(-1, 2),
    "expand to itself": lambda c: c.expand(6),
    "unfold": lambda c: c.unfold(0, 3, 1),
    "unfold apart": lambda c: c.unfold(0, 2, 3),
    "as_strided": lambda c: c.as_strided((4, 3), (1, 1)),
    "t of view": lambda c: c.view(2, 3).t(),
}
CHANGES = {
    "base": lambda c, view: c.mul_(c.detach() + 2),
    "part": lambda c, view: c[1:4].mul_(3.0),
    "view": lambda c, view: view.mul_(3.0),
    "twice": lambda c, view: (c.mul_(2.0), c[2:].add_(1.0)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", VIEWS)
def test_a_view_follows_its_base(name, change):
    def gradient(lib):
        x = lib.arange(6.0, requires_grad=True)
        base = x * 2
        view = VIEWS[name](base)
        CHANGES[change](base, view)
        ((view * view).sum() + (base**3).sum()).backward()
        return x.grad.tolist()

    if change == "view" and name in ("expand", "expand of part", "unfold", "as_strided"):
        pytest.skip("several elements are one number")
    assert gradient(ng) == gradient(torch)


def test_windows_that_need_a_gradient_are_not_written():
    base = ng.ones(5, requires_grad=True) * 1
    with pytest.raises(RuntimeError, match=r"mul_: .*more than one element .* clone\(\)"):
        base.unfold(0, 3, 1).mul_(2.0)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.copy_(ng.arange(3.0)),
        lambda x: x.__setitem__(0, 1.0),
        lambda x: x.__setitem__(slice(None), ng.arange(3.0)),
        lambda x: x.add_(ng.arange(3.0)),
    ],
)
def test_rows_of_one_number_are_not_written(write, compiled):
    for rows in (ng.ones(3, 1).expand(3, 3), ng.ones(3, 1).expand(3, 3).detach()):
        with pytest.raises(RuntimeError, match=r"more than one element .* clone\(\)"):
            (ng.compile(write) if compiled else write)(rows)
        assert (rows == 1).all()
