"""Graphs that compiled functions leave behind raise, and pass by, what eager ones do.

A scenario is a function of ``compiled``, which is ``ng.compile`` or does nothing.
"""

import pytest

import numbagrad as ng
from numbagrad.errors import RecordingError, VersionError

pytestmark = pytest.mark.interpreted


def assert_same(scenario):
    __tracebackhide__ = True
    assert scenario(ng.compile) == scenario(lambda function: function)


class OneWay(ng.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2


def of_a_changed_value(weight, x):
    y = (weight * x).tanh()
    z = y * y
    y.mul_(2)
    return z


def of_a_missing_backward(weight, x):
    return OneWay.apply(weight * x)


ERRORS = {of_a_changed_value: VersionError, of_a_missing_backward: NotImplementedError}


@pytest.mark.parametrize("function", ERRORS, ids=lambda function: function.__name__)
def test_an_error_of_backward_comes_with_backward(function):
    weight, x = ng.ones(2, requires_grad=True), ng.ones(2)
    wanted = function(weight, x)
    found = ng.compile(function)(weight, x)
    assert found.tolist() == wanted.tolist() and found.requires_grad
    for y in (wanted, found):
        other = ng.ones(2, requires_grad=True)
        assert ng.autograd.grad((y.detach() * other).sum(), [other])[0].tolist() == y.tolist()
        with pytest.raises(ERRORS[function]):
            ng.autograd.grad(y.sum(), [weight], allow_unused=True)
        with pytest.raises(ERRORS[function]):
            y.sum().backward()
    assert weight.grad is None


def test_a_result_that_is_not_used_gives_no_gradient():
    def scenario(compiled):
        used, unused, both = (ng.ones(2, requires_grad=True) for _ in range(3))
        step, found = compiled(lambda x: (used * x * both, (unused * both).sum(), unused[:0])), []
        for pick in (0, 1, 2):
            step(ng.ones(2))[pick].sum().backward()
            found += [None if t.grad is None else t.grad.tolist() for t in (used, unused, both)]
        return found

    assert_same(scenario)


def test_the_graph_of_a_captured_value_is_gone_through_once():
    def scenario(compiled):
        weight, seen = ng.tensor([0.5, -1.0], requires_grad=True), []
        weight.register_hook(lambda g: seen.append("weight"))
        y = ng.tanh(weight) * 2
        y.register_hook(lambda g: (seen.append("y"), g * 3)[1])
        (compiled(lambda x: (x * y * weight).sum())(ng.ones(2)) * 2).backward()
        return weight.grad.tolist(), seen

    assert_same(scenario)


def test_a_graph_that_leads_nowhere():
    def scenario(compiled):
        step = compiled(lambda x: (x.detach().clone().requires_grad_() * 2)[1:])
        found = step(ng.ones(3))
        found.sum().backward()
        return found.tolist(), found.requires_grad

    assert_same(scenario)


def test_zero_grad_drops_what_came_later():
    """A parameter that the step does not use, which had no gradient when it was recorded."""

    def scenario(compiled):
        used, idle = (ng.ones(2, requires_grad=True) for _ in range(2))
        optimizer = ng.optim.SGD([used, idle], lr=0.5)

        def step(x):
            optimizer.zero_grad()
            (used * x).sum().backward()
            optimizer.step()

        step = compiled(step)
        step(ng.ones(2))
        idle.grad = ng.ones(2)
        step(ng.ones(2))
        return used.tolist(), idle.tolist(), idle.grad

    assert_same(scenario)


def test_versions_of_views_that_are_returned():
    """A change of the result is one of the tensor that it is a view of, wherever that lies now."""

    def scenario(compiled):
        whole = ng.arange(6.0)
        part = whole[2:]
        part.data = part.data.clone()
        step = compiled(lambda x: part[1:])
        for _ in range(2):
            step(ng.ones(1)).zero_()
        return part.tolist(), whole.tolist(), part._version, whole._version

    assert_same(scenario)


def test_a_view_of_a_base_that_was_given_other_data():
    def scenario(compiled):
        whole = ng.arange(6.0)
        part, found = whole[2:], []
        step = compiled(lambda x: part[1:])
        for _ in range(2):
            found.append(step(ng.ones(1)).tolist())
            whole.data = ng.zeros(6)
        return found

    assert_same(scenario)


def test_strides_from_the_start_of_an_argument():
    whole = ng.arange(6.0)

    @ng.compile
    def pairs(x):
        return x.as_strided((2, 2), (1, 1), 1)

    assert pairs(whole).tolist() == [[1.0, 2.0], [2.0, 3.0]]
    assert pairs(whole[:5]).tolist() == [[1.0, 2.0], [2.0, 3.0]]
    with pytest.raises(RecordingError, match=r"as_strided: .* begins 1 elements .* a clone"):
        pairs(whole[1:])
