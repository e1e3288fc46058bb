"""Saving and loading: safetensors files that also keep the structure around the tensors.

The file holds the tensors under readable names; its metadata holds, as JSON, where each stands in
the saved object. Reading one never runs code. A safetensors file of other origin loads as a dict.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import numpy as np
import safetensors
from safetensors.numpy import save as to_bytes
from safetensors.numpy import save_file

from .devices import to_device
from .dtypes import bfloat16
from .errors import DTypeError, FormatError
from .kernels.machine import address_of
from .tensor import Tensor, wrap_any

__all__ = ["load", "save"]

_STRUCTURE = "numbagrad"
_DEEPEST = 200
_MEMORY = {"BOOL": np.dtype(bool), "BF16": bfloat16.numpy} | {
    f"{kind}{8 * size}": np.dtype(f"<{kind.lower()}{size}")
    for kind, sizes in {"F": (2, 4, 8), "I": (1, 2, 4, 8), "U": (1,)}.items()
    for size in sizes
}
"""The NumPy dtypes of what safetensors calls F32, I64, U8."""


def save(
    obj: Any,
    f: str | os.PathLike[str] | IO[bytes],
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Write ``obj`` to ``f``: a tensor, or dicts, lists and tuples of tensors, numbers, strings.

    The file appears whole or not at all; into one that is open, ``io.BytesIO()`` say, all is
    written at once. A tensor that occurs twice, and tensors on the same memory with the same
    layout, are written once and shared again after loading; gradients and history are not kept.
    What PyTorch's programs say of pickle and zip is accepted, and changes nothing. Raises TypeError
    for anything else, naming where it stands.
    """
    writer = _Writer()
    structure = json.dumps({"version": 1, "object": writer.encode(obj, (), 0)})
    if hasattr(f, "write"):
        f.write(to_bytes(writer.arrays, {_STRUCTURE: structure}))
        return
    path = Path(f)
    name = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    open(name, "xb").close()  # a missing folder, say, is the system's own error
    mode = name.stat().st_mode
    try:
        save_file(writer.arrays, name, {_STRUCTURE: structure})
        name.chmod(mode)  # safetensors lets nobody else read what it writes
        with open(name, "rb") as file:
            os.fsync(file.fileno())
        os.replace(name, path)
    except safetensors.SafetensorError as error:
        raise OSError(f"save: {path} cannot be written: {error}") from None
    finally:
        name.unlink(missing_ok=True)


def load(
    f: str | os.PathLike[str] | IO[bytes],
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = True,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """What ``save`` wrote to ``f``; a dict of tensors for other safetensors files.

    f: a path; of a file that is open, ``io.BytesIO`` say, all that is left in it is read.
    map_location: where the tensors go, by default the CPU; a dict from ``"cpu"``, or a function
    that is given a tensor and ``"cpu"``, as nothing else is known of where a tensor was.
    weights_only, mmap and what is said of pickle: accepted, and change nothing, as a file holds no
    more than tensors, numbers and strings. Raises FormatError, which names the file and the reason,
    for one that is truncated, damaged, or no safetensors file; nothing in it is executed.
    """
    unknown = sorted(pickle_load_args.keys() - {"encoding", "errors", "fix_imports"})
    if unknown:
        raise TypeError(
            f"load() got an unexpected keyword argument {unknown[0]!r}. It takes f, "
            f"map_location, pickle_module, weights_only, mmap and encoding."
        )
    path, place = f, _placing(map_location)
    try:
        if hasattr(path, "read"):
            tensors, metadata = _from_bytes(path.read(), place)
        else:
            tensors, metadata = _from_file(Path(path), place)
    except (safetensors.SafetensorError, DTypeError, TypeError, AttributeError, KeyError) as error:
        if _is_pickle(path):
            raise FormatError(
                f"load: {path} is a pickle, as torch.save writes it, which runs code when it is "
                f"read. Load it where it was made, and save it there with "
                f"safetensors.torch.save_file."
            ) from None
        raise _damaged(path, error) from None
    if _STRUCTURE not in metadata:
        return tensors
    try:
        structure = json.loads(metadata[_STRUCTURE])
        if structure["version"] != 1:
            raise FormatError(f"its structure has version {structure['version']}, known is 1")
        return _decode(structure["object"], tensors)
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise _damaged(path, error) from None


def _placing(map_location: Any) -> Callable[[Tensor], Tensor]:
    """What brings a tensor to where ``map_location`` says."""
    if callable(map_location):

        def asked(tensor: Tensor) -> Tensor:
            found = map_location(tensor, "cpu")
            return tensor if found is None else found

        return asked
    if isinstance(map_location, Mapping):
        map_location = map_location.get("cpu")
    place = to_device("cpu" if map_location is None else map_location)
    return lambda tensor: tensor.to(place)


def _is_pickle(path: Any) -> bool:
    """Whether a file begins as a pickle does, or as an archive that holds one."""
    if hasattr(path, "read"):
        return False  # it has been read
    with open(path, "rb") as file:
        start = file.read(256)
    return start[:2] in (b"\x80\x02", b"\x80\x04") or (start[:2] == b"PK" and b"data.pkl" in start)


def _damaged(path: Any, error: Exception) -> FormatError:
    return FormatError(
        f"load: {path} cannot be read: {type(error).__name__}: {error}. Expected a safetensors "
        f"file, such as ng.save writes; this one is truncated, damaged or of another format."
    )


def _from_file(
    path: Path, place: Callable[[Tensor], Tensor]
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file, each read when its turn comes, and the file's metadata."""
    if not path.is_file():  # a missing file or a folder: the system's own error
        open(path, "rb").close()
    with safetensors.safe_open(path, framework="np") as file:
        metadata = file.metadata() or {}
        return {name: place(_to_tensor(_read(file, name, path))) for name in file.keys()}, metadata


def _read(file: Any, name: str, path: Path) -> np.ndarray:
    """The tensor ``name``. bfloat16, which NumPy lacks, is read past safetensors, which checked."""
    if file.get_slice(name).get_dtype() != "BF16":
        return file.get_tensor(name)
    with open(path, "rb") as raw:
        length = int.from_bytes(raw.read(8), "little")
        entry = json.loads(raw.read(length))[name]
        begin, end = entry["data_offsets"]
        raw.seek(8 + length + begin)
        return np.frombuffer(raw.read(end - begin), bfloat16.numpy).reshape(entry["shape"])


def _from_bytes(
    content: bytes, place: Callable[[Tensor], Tensor]
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The same for the bytes of a file."""
    found = {}
    for name, entry in safetensors.deserialize(content):
        memory = _MEMORY[entry["dtype"]]
        found[name] = np.frombuffer(entry["data"], memory).reshape(entry["shape"])
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
    return {name: place(_to_tensor(array)) for name, array in sorted(found.items())}, metadata


class _Words:
    """An array of bfloat16 as safetensors' NumPy side takes it: by its name, which NumPy lacks."""

    dtype = SimpleNamespace(name="bfloat16", byteorder="<")

    def __init__(self, array: np.ndarray):
        self.shape, self.nbytes, self.tobytes = array.shape, array.nbytes, array.tobytes
        self.ctypes = array.ctypes  # keeps the array


def _to_tensor(array: np.ndarray) -> Tensor:
    return wrap_any(array if array.flags.writeable else array.copy())


class _Writer:
    """Turns an object into JSON, collecting its tensors under names made of their path.

    A value is itself if it is None, a bool, a number or a string; otherwise a dict with one key
    that says what it is.
    """

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}
        self._names: dict[tuple, str] = {}

    def encode(self, value: Any, path: tuple[str, ...], depth: int) -> Any:
        """The JSON of ``value``, which stands at ``path``."""
        if depth > _DEEPEST:
            raise ValueError(
                f"save: more than {_DEEPEST} levels at {_show(path[:8])}...; does the object "
                f"contain itself?"
            )
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, Tensor):
            return {"tensor": self._name(value, path)}
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return {"float": value.hex()}
        if isinstance(value, Mapping):
            pairs = []
            for key, member in value.items():
                if not (key is None or isinstance(key, (bool, int, float, str, np.generic))):
                    raise TypeError(
                        f"save: the key {key!r} at {_show(path)} is of type {type(key).__name__}; "
                        f"keys must be strings or numbers."
                    )
                encoded = self.encode(member, (*path, str(key)), depth + 1)
                pairs.append([self.encode(key, path, depth + 1), encoded])
            return {"dict": pairs}
        if isinstance(value, (list, tuple)):
            members = [
                self.encode(member, (*path, str(i)), depth + 1) for i, member in enumerate(value)
            ]
            return {"tuple" if isinstance(value, tuple) else "list": members}
        raise TypeError(
            f"save: cannot save a {type(value).__name__} at {_show(path)}. Save tensors, numbers, "
            f"strings, and dicts, lists and tuples of them; of a module, its state_dict()."
        )

    def _name(self, tensor: Tensor, path: tuple[str, ...]) -> str:
        array = tensor._array
        start = address_of(array) if array.size else id(tensor)
        key = (start, array.shape, array.strides, array.dtype)
        name = self._names.get(key)
        if name is None:
            base = name = ".".join(path) or "tensor"
            number = 1
            while name in self.arrays or name == "__metadata__":
                number += 1
                name = f"{base}#{number}"
            self._names[key] = name
            held = array if isinstance(array, np.ndarray) else array.get()  # a GPU's
            whole = np.ascontiguousarray(held).reshape(array.shape)
            self.arrays[name] = _Words(whole) if whole.dtype == bfloat16.numpy else whole
        return name


def _show(path: tuple[str, ...]) -> str:
    return "".join(f"[{part}]" for part in path) or "the top"


def _decode(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The object whose JSON is ``value``."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if not isinstance(value, dict) or len(value) != 1:
        raise FormatError("its structure holds an unknown value")
    ((kind, content),) = value.items()
    if kind == "tensor":
        if content not in tensors:
            raise FormatError(f"its structure names a tensor {content!r} that it does not hold")
        return tensors[content]
    if kind == "float":
        return float.fromhex(content)
    if kind == "dict":
        return {_decode(key, tensors): _decode(member, tensors) for key, member in content}
    if kind in ("list", "tuple"):
        members = [_decode(member, tensors) for member in content]
        return tuple(members) if kind == "tuple" else members
    raise FormatError(f"its structure holds an unknown kind {kind!r}")
