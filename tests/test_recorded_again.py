"""Functions that remember what they launched, where a call records several nodes.

What hangs below a result is the same as without a memory: names, what was saved, gradients of both
orders.
"""

from __future__ import annotations

import numba
import pytest
from test_remembered import after, at_once, equal

import numbagrad as ng
from numbagrad.ops import remembered

__all__ = ["at_once"]

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is remembered then")


def graph(node):
    """What hangs below a node, by names and by what each one saved."""
    if node is None or not hasattr(node, "_saved"):
        return None
    saved = [getattr(v, "shape", v) for v in node._saved or ()]
    return node.name(), saved, [graph(n) for n, _ in node.next_functions]


SEVERAL_NODES = {
    "clamp": lambda x, y: x.clamp(-0.5, 0.5),
    "where": lambda x, y: ng.where(x > 0, x, y),
    "masked_fill": lambda x, y: x.masked_fill(y > 0, 2.0),
    "clone": lambda x, y: x.clone(),
    "min": lambda x, y: x.min(),
    "dot": lambda x, y: x.flatten().dot(y.flatten()),
    "inner": lambda x, y: ng.inner(x, y),
    "outer": lambda x, y: ng.outer(x[0], y[0]),
    "addmm": lambda x, y: ng.addmm(x, y, y, alpha=2.0),
    "baddbmm": lambda x, y: ng.baddbmm(x[None], y[None], x[None]),
    "hinge_embedding_loss": lambda x, y: ng.nn.functional.hinge_embedding_loss(x, y.sign()),
    "corrcoef": lambda x, y: ng.corrcoef(x),
    "softplus": lambda x, y: ng.nn.functional.softplus(x, 2.0),
    "index_put": lambda x, y: x.index_put((ng.tensor([3, 1]),), y[:2]),
    "columns": lambda x, y: x[:, [2, 0]],
    "select_scatter": lambda x, y: x.select_scatter(y[0], 1, 2),
    "pdist": lambda x, y: ng.nn.functional.pdist(x),
    "interpolate": lambda x, y: ng.nn.functional.interpolate(x[None], 7, mode="linear"),
    "grid_sample": lambda x, y: ng.nn.functional.grid_sample(x[None, None], y.view(1, 2, 4, 2)),
    "batch_norm": lambda x, y: ng.nn.functional.batch_norm(x, y[0].detach(), y[1].detach().exp()),
    "conv1d": lambda x, y: ng.nn.functional.conv1d(x[None], y[None]),
}


@pytest.mark.parametrize("name", SEVERAL_NODES)
def test_all_that_a_call_recorded_is_recorded_again(name, at_once):
    call = SEVERAL_NODES[name]

    def gradients(out, x, y):
        first = ng.autograd.grad(out.square().sum(), (x, y), create_graph=True, allow_unused=True)
        total = sum(g.square().sum() for g in first if g is not None)
        return out, *first, *ng.autograd.grad(total, (x, y), allow_unused=True)

    for _ in range(3):
        x, y = (ng.randn(4, 4, dtype=ng.float64, requires_grad=True) for _ in range(2))
        out = call(x, y)
    recorded = graph(out.grad_fn)
    got = gradients(out, x, y)
    with after(1 << 30):
        truth = call(x, y)
        assert recorded == graph(truth.grad_fn)
        equal(got, gradients(truth, x, y), name)


def test_a_view_that_was_saved_is_found_out_when_its_base_changes(at_once):
    for _ in range(4):
        x, y = ng.randn(4, 4, requires_grad=True), ng.randn(4, 4)
        out = ng.inner(x, y)
        y.mul_(2)
        with pytest.raises(RuntimeError, match=r"modified by an inplace .* at .*_again\.py"):
            out.sum().backward()
        other = ng.randn(4, 4)
        out = ng.inner(x, other)
        out.sum().backward()
        ng.testing.assert_close(x.grad, other.sum(0).expand(4, 4))


def test_nodes_of_other_calls_are_not_taken_for_own(at_once):
    """A function that stands on a tensor with a history that is no argument."""
    w = ng.rand(3, requires_grad=True) * 2

    @remembered.remembered
    def scaled(x):
        return ng.mul(x, w)

    for k in range(4):
        x = ng.rand(3, requires_grad=True)
        out = scaled(x)
        assert out.grad_fn.next_functions[1][0] is w.grad_fn, k
