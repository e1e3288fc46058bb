"""``Module``: parameters, buffers and children found by assignment; calls with hooks; printing.

Start reading at ``Module.__setattr__``. What is registered stands twice: in ``_parameters``,
``_buffers`` or ``_modules``, which keep the order and are what is listed, and as an ordinary
attribute, because ``self.weight`` found by ``__getattr__`` would cost 0.5 us at each call.
Saving and loading is in ``state.py``, conversion in ``convert.py`` and ``recast.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...kernels import machine
from ...kernels.machine import changed
from ...later import asked_for
from ...tape import RemovableHandle
from ...tensor import Tensor
from ..parameter import Buffer, Parameter
from .backward_hooks import call_with_backward_hooks
from .members import TABLES, Members, renewed
from .recast import Recast
from .state import Stateful

__all__ = ["Module"]

_compiler = asked_for("numbagrad", {"compile": "compiled"})
"""Finds ``ng.compile``, which stands above this part of the package."""


class _WithKwargs:
    """A hook that is told the keyword arguments too."""

    __slots__ = ("hook",)

    def __init__(self, hook: Callable):
        self.hook = hook

    def before(self, module: Any, args: Any, kwargs: Any) -> tuple[tuple, dict]:
        """The arguments that a forward pre-hook leaves."""
        changed = self.hook(module, args, kwargs)
        if changed is None:
            return args, kwargs
        if not isinstance(changed, tuple) or len(changed) != 2:
            raise RuntimeError(
                f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got "
                f"{changed!r}."
            )
        return changed


class Module(Recast, Stateful):
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
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _non_persistent: set[str]
    # Hooks by kind; None until the first one, which keeps a call cheap.
    _hooks: dict[str, dict[int, Any]] | None = None
    # Whether a compiled function has looked at it: see ``machine.announcing``.
    _watched = False
    # Attributes that compiled functions look at in each call, as one of them sets them.
    _carried: frozenset[str] = frozenset()

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

    def _called_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
        hooks: Any = self._hooks
        for hook in list(hooks["forward_pre"].values()):
            if type(hook) is _WithKwargs:
                args, kwargs = hook.before(self, args, kwargs)
                continue
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        if hooks["backward"] or hooks["backward_pre"]:
            output = call_with_backward_hooks(self, hooks, args, kwargs)
        else:
            output = self.forward(*args, **kwargs)
        for hook in list(hooks["forward"].values()):
            if type(hook) is _WithKwargs:
                changed = hook.hook(self, args, kwargs, output)
            else:
                changed = hook(self, args, output)
            if changed is not None:
                output = changed
        return output

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

    # -- registration ----------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        for kind, table, ours in (
            (Parameter, "_parameters", "parameter"),
            (Module, "_modules", "child module"),
            (Tensor, "_buffers", "buffer"),
        ):
            held = self.__dict__.get(table)
            if held is None and ours != "buffer" and isinstance(value, kind):
                raise AttributeError(f"cannot assign {ours}s before Module.__init__() call")
            if ours != "buffer" and isinstance(value, kind):
                self._check_value(name, value)
                self._claim(name, table)
                self._put(table, name, value)
                return
            if held is not None and name in held:
                if value is not None and not isinstance(value, kind):
                    raise TypeError(
                        f"cannot assign {type(value).__name__!r} as {ours} {name!r} "
                        f"({kind.__name__} or None expected). Delete the attribute first."
                    )
                if isinstance(value, Buffer):
                    break
                self._put(table, name, value)
                return
        if isinstance(value, Buffer):
            self.register_buffer(name, value, value.persistent)
            return
        if name in TABLES and isinstance(value, dict):
            self._exchange(name, value)
            return
        held = self.__dict__.get(name, self)
        if type(held) is bool and type(value) is bool:
            # Switched back it is the old sum: steps compiled before train() and eval() run again.
            if self._watched:
                machine.add_to_epoch(hash((id(self), name)) * (value - held))
        elif held is not value and self._watched:
            self._announce(name)
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if self._watched:
            changed()
        object.__delattr__(self, name)
        self._claim(name, "")

    def __getattr__(self, name: str) -> Any:
        for table in TABLES:  # it hides what the class has, or ``super().__getattr__`` asks
            if name in self.__dict__.get(table, ()):
                return self.__dict__[table][name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        renewed(self, self.__dict__)

    def _put(self, table: str, name: str, value: Any) -> None:
        new = self.__dict__.get(name, self) is not value or name not in self.__dict__[table]
        if new and self._watched:  # not for ``self.count += 1``, which assigns the same tensor
            if table == "_buffers":
                self._announce(name)
            else:
                changed()
        dict.__setitem__(self.__dict__[table], name, value)
        if name not in _METHODS:  # as which it is found by the tables alone
            self.__dict__[name] = value

    def _show(self, name: str, value: Any) -> None:
        """A member was written into its table: let it be the attribute."""
        if self.__dict__.get(name, self) is not value and name not in _METHODS:
            self.__dict__[name] = value
            if self._watched:
                changed()

    def _hide(self, name: str, value: Any) -> None:
        """A member was taken out of its table."""
        if self.__dict__.get(name, self) is value:
            del self.__dict__[name]
            if self._watched:
                changed()

    def _exchange(self, table: str, members: dict[str, Any]) -> None:
        """Let another dict be a table."""
        for name, value in list(self.__dict__.get(table, {}).items()):
            self._hide(name, value)
        self.__dict__[table] = Members(self, members)
        for name, value in members.items():
            self._show(name, value)

    def _announce(self, name: str) -> None:
        """Tell compiled functions that an attribute is another; a recording looks for itself."""
        if name not in self._carried and not machine.is_compiling():
            changed()

    def _claim(self, name: str, table: str) -> None:
        """Forget what stands as ``name`` in the tables other than ``table``."""
        for other in TABLES:
            if other != table:
                self.__dict__[other].pop(name, None)
        self._non_persistent.discard(name)

    def _check_value(self, name: str, value: Any) -> None:
        if isinstance(value, Parameter) and not value.is_leaf:
            raise ValueError(
                f"cannot assign non-leaf Tensor to parameter {name!r}; compute it from a leaf in "
                f"forward instead."
            )

    def _register(self, table: str, name: str, value: Any, kind: type) -> None:
        if table not in self.__dict__:
            raise AttributeError(f"cannot assign {table[1:]} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"name should be a string, got {type(name).__name__}.")
        if "." in name:
            raise KeyError(f'name can\'t contain ".", got {name!r}.')
        if not name:
            raise KeyError('name can\'t be empty string "".')
        if hasattr(self, name) and name not in self.__dict__[table]:
            raise KeyError(f"attribute {name!r} already exists")
        if value is not None and not isinstance(value, kind):
            raise TypeError(
                f"cannot assign {type(value).__name__!r} object to {name!r} ({kind.__name__} or "
                f"None required)"
                + (". Functions have modules, nn.ReLU() say." if callable(value) else "")
            )
        self._check_value(name, value)
        self._put(table, name, value)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter; None leaves a slot that a later assignment fills."""
        self._register("_parameters", name, param, Parameter)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that moves and is saved with the module but is not a parameter.

        persistent: False keeps it out of ``state_dict``.
        """
        self._register("_buffers", name, tensor, Tensor)
        if persistent:
            self._non_persistent.discard(name)
        else:
            self._non_persistent.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child, found as the attribute ``name``."""
        self._register("_modules", name, module, Module)

    register_module = add_module

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

    # -- hooks -----------------------------------------------------------------------------------

    def _call_hooks(self, kind: str) -> dict[int, Any]:
        if self._hooks is None:
            kinds = ("compiled", "forward_pre", "forward", "backward_pre", "backward")
            self._hooks = {each: {} for each in kinds}
        return self._hooks[kind]

    def _add_hook(self, kind: str, hook: Any, first: bool) -> RemovableHandle:
        return RemovableHandle(self._call_hooks(kind), hook, first)

    def register_forward_pre_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args)`` before forward; it may return new args.

        with_kwargs: ``hook(module, args, kwargs)``, which may return new ``(args, kwargs)``.
        """
        return self._add_hook("forward_pre", _WithKwargs(hook) if with_kwargs else hook, prepend)

    def register_forward_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, args, output)`` after forward; it may return a new output.

        with_kwargs: ``hook(module, args, kwargs, output)``.
        """
        return self._add_hook("forward", _WithKwargs(hook) if with_kwargs else hook, prepend)

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Call ``hook(module, grad_input, grad_output)`` once the inputs' gradients are known.

        It may return new gradients of the inputs (positional tensors; None elsewhere).
        """
        return self._add_hook("backward", hook, prepend)

    def register_full_backward_pre_hook(
        self, hook: Callable, prepend: bool = False
    ) -> RemovableHandle:
        """Call ``hook(module, grad_output)`` before the module's backward.

        It may return new gradients of the outputs (None for those that need none).
        """
        return self._add_hook("backward_pre", hook, prepend)

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


_METHODS = frozenset(dir(Module)) - {"training"}
"""Names that a member does not hide: ``self.parameters = ParameterList(...)``."""

machine.announcing.append(Module)
