"""``Module``: calls itself, lists what was registered, prints itself.

Start reading at ``Module.__call__``. Hooks are in ``call_hooks.py``,
registration in ``registration.py``, saving and loading in
``state.py``, conversion in ``convert.py`` and ``recast.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...kernels import machine
from ...later import asked_for
from ...tensor import Tensor
from ..parameter import Parameter
from .call_hooks import (
    CallHooks,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
)
from .members import Members
from .recast import Recast
from .registration import METHODS, Registering
from .state import Stateful

__all__ = [
    "Module",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
]

_compiler = asked_for("numbagrad", {"compile": "compiled"})
"""Finds ``ng.compile``, which stands above this part of the package."""


class Module(CallHooks, Registering, Recast, Stateful):
    """The base of all layers and models: subclass it, register in ``__init__``, write ``forward``.

    Parameters, buffers (``Buffer``, ``register_buffer``) and modules assigned to attributes are
    found by ``parameters()``, ``state_dict()``, ``to()`` and printing, in order of assignment.

    >>> import numbagrad as ng
    >>> class Scale(Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.weight = Parameter(ng.tensor([2.0]))
    ...     def forward(self, x):
    ...         return self.weight * x
    >>> Scale()(ng.tensor([3.0])).tolist()
    [6.0]
    """

    training: bool

    def __init__(self) -> None:
        self.__dict__.update(
            training=True,
            _parameters=Members(self),
            _buffers=Members(self),
            _modules=Members(self),
            _non_persistent=set(),
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the result; every subclass overrides it."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        hooks = self._hooks
        if hooks is None:
            return self.forward(*args, **kwargs)
        for compiled in hooks["compiled"].values():
            return compiled(*args, **kwargs)
        return self._called_with_hooks(*args, **kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Run calls of this module, hooks included, compiled from now on.

        Takes what ``ng.compile`` takes; that gives another module, this changes the module itself,
        whose names in ``state_dict()`` stay. A second call takes the place of the first;
        ``compile(disable=True)`` ends it.

        >>> layer = ng.nn.Linear(2, 2)
        >>> x = ng.ones(1, 2)
        >>> layer.compile()
        >>> layer(x).allclose(layer.forward(x))
        True
        """
        compiled = _compiler("compile")(self._called_with_hooks, *args, **kwargs)
        self._call_hooks("compiled")[0] = compiled

    def _as_compiled(self, run: Callable) -> Module:
        """What ``ng.compile`` returns for this module: one that calls ``run``."""
        from .compiled import CompiledModule

        return CompiledModule(self, run)

    # -- listing ---------------------------------------------------------------------------------

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Direct children with their names, each once."""
        seen: set[int] = set()
        for name, module in self._modules.items():
            if module is not None and id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def children(self) -> Iterator[Module]:
        """Direct children, each once."""
        for _, module in self.named_children():
            yield module

    def named_modules(
        self, memo: set | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module, then all below it, with dotted names; each once."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                below = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, below, remove_duplicate)

    def modules(self, *, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module, then all below it, each once unless told otherwise."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def _named_members(
        self, table: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        owners: Iterable[tuple[str, Module]] = [(prefix, self)]
        if recurse:
            owners = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
        for path, owner in owners:
            for name, member in owner.__dict__[table].items():
                if member is None or (remove_duplicate and id(member) in seen):
                    continue
                seen.add(id(member))
                yield f"{path}.{name}" if path else name, member

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Parameters with dotted names, in order of registration."""
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Parameters in order of registration, each once."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers with dotted names."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Buffers, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def get_submodule(self, target: str) -> Module:
        """The module at a dotted path; the empty path is this one."""
        module = self
        for name in target.split(".") if target else ():
            found = getattr(module, name, None)
            if not isinstance(found, Module):
                raise AttributeError(f"{type(module).__name__} has no submodule {name!r}")
            module = found
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put ``module`` at a dotted path, in place of the one there or as a new child.

        strict: only in place of one. Raises AttributeError where the path leads to no module,
        ValueError if its last name is empty or ``module`` is none.
        """
        path, _, name = target.rpartition(".")
        if not name:
            raise ValueError(
                f"set_submodule: cannot set the submodule without a target name, got {target!r}."
            )
        if not isinstance(module, Module):
            raise ValueError(
                f"set_submodule: module is not an nn.Module, but {type(module).__name__}. Pass a "
                f"layer or model."
            )
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(
                f"set_submodule: {type(parent).__name__} has no attribute {name!r} to replace. "
                f"Pass strict=False to add it."
            )
        if not isinstance(getattr(parent, name, module), Module):
            raise AttributeError(
                f"set_submodule: {name!r} of {type(parent).__name__} is not an nn.Module. Delete "
                f"it first, or choose another name."
            )
        setattr(parent, name, module)

    def _member(self, table: str, kind: str, target: str) -> Any:
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if name not in owner.__dict__[table]:
            raise AttributeError(f"{type(owner).__name__} has no {kind} {name!r}")
        return owner.__dict__[table][name]

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path."""
        return self._member("_parameters", "parameter", target)

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path."""
        return self._member("_buffers", "buffer", target)

    # -- modes -----------------------------------------------------------------------------------

    def apply(self, fn: Callable[[Module], None]) -> Any:
        """Call ``fn`` on every module below, then on this one; returns this one."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Any:
        """Set training mode (what dropout looks at) here and below."""
        if not isinstance(mode, bool):
            raise ValueError(f"train: training mode is expected to be boolean, got {mode!r}.")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Any:
        """Set evaluation mode here and below."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Turn the gradients of all parameters on or off."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros."""
        for parameter in self.parameters():
            if set_to_none or parameter.grad is None:
                parameter.grad = None
            else:
                parameter.grad = parameter.grad.detach()
                parameter.grad.zero_()

    # -- printing --------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """What stands between the brackets of the printed module; override it."""
        return ""

    def share_memory(self) -> Module:
        """Move all parameters and buffers to memory that forked processes share; returns itself.

        See ``Tensor.share_memory_``.
        """
        for tensor in (*self.parameters(), *self.buffers()):
            tensor.share_memory_()
        return self

    def _get_name(self) -> str:
        """What the module is called when printed."""
        return type(self).__name__

    def _child_lines(self) -> list[str]:
        return [f"({name}): {module!r}" for name, module in self._modules.items()]

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = self._child_lines()
        if len(lines) <= 1 and not children:
            return f"{self._get_name()}({extra})"
        body = "\n".join(lines + children).replace("\n", "\n  ")
        return f"{self._get_name()}(\n  {body}\n)"


METHODS |= set(dir(Module)) - {"training"}
machine.announcing.append(Module)
