"""How a module takes up what is assigned to it: parameters, buffers and children.

What is registered stands twice: in ``_parameters``, ``_buffers`` or ``_modules``, which keep the
order and are what is listed, and as an ordinary attribute, because ``self.weight`` found by
``__getattr__`` would cost 0.5 us at each call. Start reading at ``Registering.__setattr__``.
"""

from __future__ import annotations

from typing import Any

from ...kernels import machine
from ...kernels.machine import changed
from ...tensor import Tensor
from ..parameter import Buffer, Parameter
from .members import TABLES, Members, renewed

__all__ = ["METHODS", "Registering"]

METHODS: set[str] = set()
"""Names that a member does not hide, those of the methods of ``Module``."""


def _called(kind: type) -> str:
    """What messages call a class."""
    return "Module" if kind is Registering else kind.__name__


def _is_equal(held: Any, value: Any) -> bool:
    """Whether a number or text is set to what it is; 0.0 may be -0.0."""
    kind = type(value)
    return kind is type(held) and kind in (int, float, str) and held == value and value != 0.0


class Registering:
    """The part of ``Module`` that registers."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Any]
    _non_persistent: set[str]
    # Whether a compiled function has looked at it: see ``machine.announcing``.
    _watched = False
    # Attributes that compiled functions look at in each call, as one of them sets them.
    _carried: frozenset[str] = frozenset()

    def __setattr__(self, name: str, value: Any) -> None:
        for kind, table, ours in (
            (Parameter, "_parameters", "parameter"),
            (Registering, "_modules", "child module"),
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
                        f"({_called(kind)} or None expected). Delete the attribute first."
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
        elif held is not value and self._watched and not _is_equal(held, value):
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
        if name not in METHODS:  # as which it is found by the tables alone
            self.__dict__[name] = value

    def _show(self, name: str, value: Any) -> None:
        """A member was written into its table: let it be the attribute."""
        if self.__dict__.get(name, self) is not value and name not in METHODS:
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
                f"cannot assign {type(value).__name__!r} object to {name!r} ({_called(kind)} or "
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

    def add_module(self, name: str, module: Any) -> None:
        """Add a child, found as the attribute ``name``."""
        self._register("_modules", name, module, Registering)

    register_module = add_module
