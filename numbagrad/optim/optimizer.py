"""``Optimizer``: parameter groups, state, and how a step reaches the kernels.

A step gathers, for each group and dtype, lists of arrays, and launches one kernel on them. Hyper-
parameters go as a callable that reads the group, so that a recorded step follows a scheduler.
Start reading at ``Optimizer.step``. Hooks are in ``hooks.py``.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from ..autograd.modes import enable_grad
from ..dtypes import DType, float32
from ..errors import ShapeError, StateMadeError, class_name
from ..item_dict import ItemDict
from ..kernels import machine
from ..kernels.machine import launch
from ..kernels.options import Options, TellingList, carried, telling
from ..ops.base import contiguous, copy_kernel, full, new_empty
from ..ops.elementwise import cast
from ..tape import grad_mode, show_location, user_location
from ..tensor import Tensor
from .hooks import Hooked, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"]


@dataclass(frozen=True)
class Update:
    """One launch: a kernel on lists of tensors: the parameters, then the optimiser's own state and
    the gradients in the kernel's order. scalars: reads the hyper-parameters.
    """

    kernel: Any
    lists: tuple[list[Tensor], ...]
    scalars: Callable[[], tuple]


class Required:
    """Stands among the defaults of an optimiser for an option that each group has to give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = Required()


class Groups(TellingList):
    """The groups of an optimiser; recorded steps notice when one is replaced."""

    def watch(self) -> None:
        """Tell of changes from now on, of the lists of parameters too."""
        self.recorded = True
        for group in self:
            if type(group["params"]) is TellingList:
                group["params"].recorded = True


class ParamState(ItemDict):
    """What an optimiser keeps of one parameter; recorded steps notice when an entry changes.

    counts: entries that recorded steps set themselves.
    """

    recorded = False
    counts: frozenset[str] = frozenset()

    def __setitem__(self, name: str, value: Any) -> None:
        if self.get(name) is not value and carried(self, name):
            dict.__setitem__(self, name, value)
            return
        self._expect(name, value)
        if self.recorded and name not in self.counts and self.get(name) is not value:
            machine.changed()
        super().__setitem__(name, value)

    def pop(self, name: str, *default: Any) -> Any:
        """Take an entry out and return it."""
        if self.recorded:
            machine.changed()
        return super().pop(name, *default)

    def _expect(self, name: str, value: Any) -> None:
        """Refuse an entry that a recorded step would set once, and a compiled one never."""
        if not machine.is_recording() or grad_mode.anomaly is not None:
            return
        if self.get(name) is not value:
            raise StateMadeError(
                f"state {name!r}: set inside a compiled function, at "
                f"{show_location(user_location())}: a compiled call would not set it. Change it in "
                f"place, with exp_avg.copy_(y) say."
            )


class State(defaultdict):
    """The ``ParamState`` of each parameter, made on first need."""

    recorded = False

    def __init__(self, *items: Any):
        super().__init__(ParamState)
        for given in items:
            for param, held in given.items():
                self[param] = held

    def __setitem__(self, param: Tensor, held: dict[str, Any]) -> None:
        if self.recorded:
            machine.changed()
        super().__setitem__(param, held if type(held) is ParamState else ParamState(held))

    def __reduce__(self) -> Any:
        return State, (dict(self),)


for _name in "__delitem__ __ior__ clear pop popitem update".split():
    setattr(State, _name, telling(getattr(dict, _name)))


class Optimizer(Hooked):
    """The base of optimisers; a subclass defines ``check`` and ``updates``.

    params: tensors, ``(name, tensor)`` pairs, or dicts with ``"params"`` and options of that
    group. defaults: options of groups that do not set them.
    """

    # Whether a step was taken: schedulers ask.
    _stepped = False
    # Whether a compiled step has looked at it: see ``machine.announcing``.
    _watched = False

    def __init__(self, params: Any, defaults: dict[str, Any]):
        if isinstance(params, (Tensor, str)):
            raise TypeError(
                f"params argument given to the optimizer should be an iterable of Tensors or "
                f"dicts, but got {type(params).__name__}."
            )
        self.defaults = defaults
        self.state = State()
        self.param_groups = Groups()
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    @property
    def state(self) -> State:
        """What is kept of each parameter, by name: momentum, number of steps."""
        if machine.is_recording() and self._has_step() and machine.is_compiling():
            for each in (self._state, *self._state.values()):
                each.recorded = True
        return self._state

    @state.setter
    def state(self, state: dict[Tensor, dict[str, Any]]) -> None:
        self._state = state if type(state) is State else State(state)
        if self._watched:
            machine.changed()

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The parameters, group by group, with the options of each."""
        if machine.is_recording():
            self._param_groups.watch()
            if machine.is_compiling():
                for group in self._param_groups:
                    group.recorded = group.watched = True
                    machine.recorder.current.reading_options(group)
        return self._param_groups

    @param_groups.setter
    def param_groups(self, groups: Iterable[dict[str, Any]]) -> None:
        if type(groups) is not Groups:
            groups = Groups([g if type(g) is Options else Options(g) for g in groups])
        self._param_groups = groups
        if self._watched:
            machine.changed()

    def _has_step(self) -> bool:
        """Whether the step is the user's, who reads state and options in Python."""
        return type(self).step is not Optimizer.step

    def _groups_of_a_step(self) -> Groups:
        """The groups, of which kernels read the numbers and nobody else."""
        if machine.is_recording():
            self._param_groups.watch()
        return self._param_groups

    # -- what a subclass defines -----------------------------------------------------------------

    def check(self, group: dict[str, Any]) -> None:
        """Raise ValueError for options that make no sense."""

    def updates(
        self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor]
    ) -> Iterable[Update]:
        """The launches that move ``params``, all of one dtype, against ``grads``."""
        raise NotImplementedError(f"{type(self).__name__} does not define updates")

    # -- a step ----------------------------------------------------------------------------------

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move every parameter that has a gradient; returns what ``closure`` returns.

        closure: computes the loss and its gradients again, with recording on.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group in self._groups_of_a_step():
            by_dtype: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
            for param in group["params"]:
                grad = param._grad
                if grad is not None:
                    if grad._array.shape != param._array.shape:
                        raise ShapeError(
                            f"{type(self).__name__}: a parameter of size {list(param.shape)} has a "
                            f"gradient of size {list(grad.shape)}. Set its .grad to None."
                        )
                    lists = by_dtype.get(param._dtype)
                    if lists is None:
                        lists = by_dtype[param._dtype] = ([], [])
                    lists[0].append(param)
                    lists[1].append(grad)
            for params, grads in by_dtype.values():
                for update in self.updates(group, params, grads):
                    run(update)
        self._stepped = True
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop all gradients, or fill them with zeros."""
        for group in self._groups_of_a_step():
            for param in group["params"]:
                if set_to_none or param._grad is None:
                    param._grad = None
                else:
                    grad = param._grad
                    if not grad.is_leaf:
                        grad = param._grad = grad.detach()
                    grad.requires_grad_(False).zero_()

    def states(self, params: list[Tensor]) -> list[ParamState]:
        """The state of each parameter, empty where it is new."""
        state = self._state
        if machine.is_recording():
            recorder = machine.recorder.current
            for param in params:
                if param not in state:  # so that no step has looked at it: nobody need be told
                    dict.__setitem__(state, param, ParamState())
                    recorder.undo(functools.partial(state.pop, param, None))
            for each in (state, *[state[param] for param in params]):
                each.recorded = True
        return [state[param] for param in params]

    # -- groups ----------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own, say a layer that is unfrozen later."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group).__name__}.")
        if machine.is_compiling():
            machine.outside(
                type(self).__name__,
                "Make it, with its groups, before the compiled step; for steps of a copy inside, "
                "as of meta-learning, write p.sub_(g, alpha=lr).",
            )
        group = Options(param_group)
        params = group["params"]
        if isinstance(params, (set, frozenset)):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the "
                "ordering of tensors in sets will change between runs. Please use a list instead."
            )
        params = [params] if isinstance(params, Tensor) else list(params)
        if params and isinstance(params[0], tuple):
            group["param_names"] = [name for name, _ in params]
            params = [param for _, param in params]
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, got {class_name(param)}.")
            if not param.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
        known = {id(p) for held in self.param_groups for p in held["params"]}
        if len({id(p) for p in params}) != len(params):
            raise ValueError(
                "a parameter stands twice in one parameter group, and would be updated twice. Pass "
                "each once, as list(dict.fromkeys(params)) does."
            )
        if known & {id(p) for p in params}:
            raise ValueError("some parameters appear in more than one parameter group")
        group["params"] = params
        for name, default in self.defaults.items():
            if isinstance(default, Required) and name not in group:
                raise ValueError(
                    f"parameter group didn't specify a value of required optimization parameter "
                    f"{name}"
                )
            group.setdefault(name, default)
        self.check(group)
        self.param_groups.append(group)

    # -- saving ----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State by number of parameter, and groups whose params are numbers; PyTorch's layout."""
        for before in self._saving_hooks("state_dict_pre"):
            before(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            packed = {name: value for name, value in group.items() if name != "params"}
            for param in group["params"]:
                numbers.setdefault(id(param), len(numbers))
            packed["params"] = [numbers[id(param)] for param in group["params"]]
            groups.append(packed)
        state = {numbers[id(param)]: held for param, held in self.state.items()}
        found = {"state": state, "param_groups": groups}
        for after in self._saving_hooks("state_dict_post"):
            returned = after(self, found)
            found = found if returned is None else returned
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a copy of the state and options that ``state_dict`` returned.

        Parameters are matched by position. Raises ValueError if groups or their lengths differ.
        """
        given = dict(state_dict)
        for before in self._saving_hooks("load_state_dict_pre"):
            returned = before(self, given)
            given = given if returned is None else returned
        saved = given["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError(
                f"loaded state dict has a different number of parameter groups: {len(saved)}, "
                f"this optimizer has {len(self.param_groups)}."
            )
        ours: dict[int, Tensor] = {}
        for group, other in zip(self.param_groups, saved, strict=True):
            if len(group["params"]) != len(other["params"]):
                raise ValueError(
                    f"loaded state dict contains a parameter group that doesn't match the size of "
                    f"optimizer's group: {len(other['params'])} parameters, here "
                    f"{len(group['params'])}."
                )
            ours.update(zip(other["params"], group["params"], strict=True))
        state = State()
        by_kernels = type(self).updates is not Optimizer.updates
        for number, held in given["state"].items():
            if number in ours:
                param = ours[number]
                taken = {name: _taken_over(name, v, param, by_kernels) for name, v in held.items()}
                state[param] = ParamState(taken)
        for group, other in zip(self.param_groups, saved, strict=True):
            group.update({n: deepcopy(v) for n, v in other.items() if n != "params"})
        self.state = state
        self.__setstate__({"state": self.state, "param_groups": self.param_groups})
        for after in self._saving_hooks("load_state_dict_post"):
            after(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over attributes: of a copy, of what was pickled, and after ``load_state_dict``.

        Subclasses add here what states that were saved before do not have.
        """
        for name, value in state.items():
            if getattr(self, name, self) is not value:
                setattr(self, name, value)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines += [""] * (i > 0) + [f"Parameter Group {i}"]
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return "\n".join([*lines, ")"])


machine.announcing.append(Optimizer)


def new_state(
    state: dict[str, Any],
    name: str,
    shape: tuple[int, ...],
    dtype: DType,
    param: Tensor,
    value: float,
) -> None:
    """Make ``state[name]``, filled: at once, even while a step is recorded, which it outlives."""
    recorder = machine.recorder
    held, recorder.current = recorder.current, None
    try:
        # Not told to recorded steps: none can rely on its absence, they would have made it.
        dict.__setitem__(state, name, full(shape, value, dtype, param._device))
    finally:
        recorder.current = held
    if held is not None:
        held.adopt(state[name], lambda: state.pop(name))


def held(
    name: str,
    params: list[Tensor],
    states: Sequence[dict[str, Any]],
    value: Callable[[], float] | float = 0,
) -> list[Tensor]:
    """The state ``name`` of each parameter, of its shape; filled with ``value`` where it is new.

    A function is asked for the value only then.
    """
    for param, state in zip(params, states, strict=True):
        found, shape = state.get(name), param._array.shape
        if found is None:
            first = value() if callable(value) else value
            new_state(state, name, shape, param._dtype, param, first)
        elif found._array.shape != shape:
            raise ShapeError(
                f"step: the state {name!r} of a parameter of size {list(shape)} has size "
                f"{list(found.shape)}: the parameter's .data was given another size. Make a new "
                f"optimiser, or pop the parameter from its state."
            )
        elif found._dtype is not param._dtype:
            _convert(state, name, param._dtype)
    return [state[name] for state in states]


def _convert(state: dict[str, Any], name: str, dtype: DType) -> None:
    """Give ``state[name]`` the dtype that its parameter has now, at once, as ``new_state``."""
    recorder, found = machine.recorder, state[name]
    held, recorder.current = recorder.current, None
    try:
        dict.__setitem__(state, name, cast(found.detach(), dtype))
    finally:
        recorder.current = held
    machine.changed()
    if held is not None:
        held.adopt(state[name], lambda: dict.__setitem__(state, name, found))


def counters(params: list[Tensor], states: Sequence[dict[str, Any]]) -> list[Tensor]:
    """The number of steps of each parameter, as float32 scalars that the kernel advances."""
    for param, state in zip(params, states, strict=True):
        if "step" not in state:
            new_state(state, "step", (), float32, param, 0)
    return [state["step"] for state in states]


def run(update: Update) -> None:
    """Launch ``update`` and note that the parameters changed; strided ones pass through copies.

    The versions of the state do not move: no tape refers to it.
    """
    arrays = [[contiguous(tensor)._array for tensor in tensors] for tensors in update.lists]
    launch(update.kernel, *arrays, update.scalars)
    where = user_location()
    for param, array in zip(update.lists[0], arrays[0], strict=True):
        if array is not param._array:
            launch(copy_kernel, param._array, array)
        counter = param._version_counter()
        counter.value += 1
        counter.where = where


def _taken_over(name: str, value: Any, param: Tensor, by_kernels: bool) -> Any:
    """A copy of a loaded state entry in the dtype of its parameter.

    What our kernels count is float32; the step of an optimiser of one's own stays as it was.
    """
    if by_kernels and name in ("step", "mu_product", "eta", "mu"):
        count = new_empty((), float32, param._device)
        count.fill_(float(value))
        return count
    if not isinstance(value, Tensor):
        return deepcopy(value)
    value = value.detach()
    cast = value.is_floating_point() and name != "step"
    value = value.to(param._dtype if cast else value._dtype, param._device, copy=True)
    return value.contiguous()  # which the kernels write


def positive(optimizer: str, group: dict[str, Any], *names: str) -> None:
    """Raise ValueError unless these options are numbers of at least zero."""
    for name in names:
        if not group[name] >= 0:
            label = {"lr": "learning rate", "eps": "epsilon value"}.get(name, f"{name} value")
            raise ValueError(f"{optimizer}: Invalid {label}: {group[name]}. It must be >= 0.")
