"""Tensors that are given other memory, or share it: compiled functions follow as eager ones do.

A scenario is a function of ``compiled``, which is ``ng.compile`` or does nothing; ``assert_same``
compares what it returns.
"""

import numpy as np
import pytest

import numbagrad as ng
from numbagrad.errors import RecordingError

pytestmark = pytest.mark.interpreted


def assert_same(scenario):
    __tracebackhide__ = True
    assert scenario(ng.compile) == scenario(lambda function: function)


# -- what happens to captured tensors between calls ------------------------------------------------


def set_a_view(base, view):
    view.data = ng.full((3,), 9.0)


def set_the_base(base, view):
    base.data = ng.full((6,), 9.0)


def set_a_view_to_another(base, view):
    view.data = base[2:5]


def set_a_view_to_its_base(base, view):
    view.data = base


CHANGES = [set_a_view, set_the_base, set_a_view_to_another, set_a_view_to_its_base]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("both", [False, True])
def test_a_view_or_its_base_gets_other_memory(change, both):
    def scenario(compiled):
        base = ng.arange(6.0)
        view = base[1:4]
        step = compiled((lambda x: x + view.sum() + base[0]) if both else lambda x: x + view.sum())
        found = [step(ng.zeros(2)).tolist()]
        change(base, view)
        return [*found, step(ng.zeros(2)).tolist()]

    assert_same(scenario)


def test_a_shape_alone_is_noticed():
    def scenario(compiled):
        state = ng.zeros(3)
        step = compiled(lambda x: x * state.shape[0])
        found = [step(ng.ones(1)).tolist()]
        state.data = ng.zeros(5)
        return [*found, step(ng.ones(1)).tolist()]

    assert_same(scenario)


def test_a_history_alone_is_noticed():
    def scenario(compiled):
        state, found = ng.zeros(3), []
        step = compiled(lambda x: x * (2.0 if state.requires_grad else 3.0))
        for needed in (False, True, False):
            state.requires_grad_(needed)
            found.append(step(ng.ones(1)).tolist())
        return found

    assert_same(scenario)


@pytest.mark.parametrize("part", [slice(None), slice(1, None)])
def test_another_history_is_followed(part):
    def scenario(compiled):
        weight = ng.ones(3, requires_grad=True)
        hidden = weight * 2
        captured = hidden[part]
        step = compiled(lambda x: (x * captured).sum())
        step(ng.tensor(3.0)).backward(retain_graph=True)
        hidden.mul_(3)
        step(ng.tensor(3.0)).backward(retain_graph=True)
        return weight.grad.tolist()

    assert_same(scenario)


# -- what a function sets --------------------------------------------------------------------------


def to_state(x, target, source):
    target.data = source


def to_a_part_of_state(x, target, source):
    target.data = source[1:3]


def to_an_argument(x, target, source):
    target.data = x


def to_a_part_of_an_argument(x, target, source):
    target.data = x[::2]


def to_what_it_makes(x, target, source):
    target.data = source.data = x * 2


def to_parts_of_what_it_makes(x, target, source):
    made = x.reshape(2, 2) * 2
    target.data, source.data = made.t(), made[1:]
    return made


def to_another_dtype(x, target, source):
    target.data = x.double()


def two_of_each_other(x, target, source):
    target.data, source.data = source.data, target.data


def while_a_view_is_returned(x, target, source):
    view = target[1:]
    target.data = x * 2
    return view


def and_back(x, target, source):
    held = target.data
    target.data = x * 2
    y = target + 1
    target.data = held
    return y


def a_gradient_to_state(x, target, source):
    source.add_(x)
    target.grad = source.detach()


def to_a_gradient(x, target, source):
    weight = x.clone().requires_grad_()
    (weight * source).sum().backward()
    target.data = weight.grad


SETS = [
    to_state,
    to_a_part_of_state,
    to_an_argument,
    to_a_part_of_an_argument,
    to_what_it_makes,
    to_parts_of_what_it_makes,
    to_another_dtype,
    two_of_each_other,
    while_a_view_is_returned,
    and_back,
    a_gradient_to_state,
    to_a_gradient,
]


@pytest.mark.parametrize("action", SETS, ids=lambda action: action.__name__)
def test_data_is_set(action):
    """Afterwards who is written shows who shares memory."""

    def scenario(compiled):
        target, source = ng.zeros(4), ng.arange(4.0)
        step, found = compiled(lambda x: action(x, target, source)), []
        for k in range(3):
            x = ng.full((4,), k + 1.0)
            result = step(x)
            held = [target, source, x, result, target.grad]
            for mark, t in enumerate(held):
                if t is not None:
                    t[(0,) * t.ndim] = 10.0 * k + mark
            found += [None if t is None else (t.tolist(), t.stride(), t.dtype) for t in held]
        return found

    assert_same(scenario)


def test_data_set_to_an_old_gradient_is_refused():
    weight, state = ng.ones(2, requires_grad=True), ng.zeros(2)
    weight.grad = ng.ones(2)

    @ng.compile
    def step(x):
        state.data = weight.grad
        return x * 2

    with pytest.raises(RecordingError, match=r"data: not possible .* gradient .* clone"):
        step(ng.ones(2))
    assert state.tolist() == [0.0, 0.0]


# -- several arrays on one buffer ------------------------------------------------------------------


def test_two_arrays_on_one_buffer_are_one_memory():
    def scenario(compiled):
        buffer = bytearray(16)
        a, b = (ng.from_numpy(np.frombuffer(buffer, np.float32)) for _ in range(2))

        def step(x):
            before = b * 1
            a.add_(x)
            return b * 2 + before

        step = compiled(step)
        return [step(ng.ones(4)).tolist() for _ in range(2)]

    assert_same(scenario)


def test_arguments_on_one_buffer_are_one_memory():
    def scenario(compiled):
        def step(x, y):
            before = y * 1
            x.add_(1)
            return y * 2 + before

        step, buffer, found = compiled(step), bytearray(16), []
        for _ in range(2):
            x, y = (ng.from_numpy(np.frombuffer(buffer, np.float32)) for _ in range(2))
            found.append(step(x, y).tolist())
        return found

    assert_same(scenario)


@pytest.mark.parametrize("other", [(np.float32, 2, 8), (np.int32, 4, 0)])
def test_other_arrays_on_a_buffer_that_is_written_are_refused(other):
    buffer = bytearray(16)
    a = ng.from_numpy(np.frombuffer(buffer, np.float32))
    b = ng.from_numpy(np.frombuffer(buffer, *other))

    @ng.compile
    def step(x):
        a.add_(x)
        return b * 2

    with pytest.raises(RecordingError, match=r"two tensors lie on one buffer.*take views"):
        step(ng.ones(4))
    assert buffer == bytearray(16)
    reading = ng.compile(lambda x: x + a.sum() + b.sum())
    assert reading(ng.ones(1)).tolist() == [1.0]


# -- results ---------------------------------------------------------------------------------------


def test_results_that_show_one_constant_share_memory():
    def scenario(compiled):
        def step(x):
            made = ng.tensor([1.0, 2.0, 3.0])
            also = ng.tensor([1.0, 2.0])
            return made, made[1:], x * made, also, also[0]

        step, found = compiled(step), []
        for _ in range(2):
            whole, part, product, also, first = step(ng.ones(3))
            part.fill_(7.0)
            first.fill_(7.0)
            found += [whole.tolist(), whole._version, product.tolist(), also.tolist()]
        return found

    assert_same(scenario)


def test_data_that_is_returned_has_a_version_of_its_own():
    def scenario(compiled):
        state, x = ng.ones(3), ng.ones(3)
        step = compiled(lambda x: (state.data, x.data[1:], state.detach(), x[1:]))
        for k, found in enumerate(step(x)):
            found.fill_(k + 1.0)
        return state.tolist(), x.tolist(), state._version, x._version

    assert_same(scenario)
