"""Where compiled code lives: content-named modules and a disk cache that cannot be stale.

Numba's own cache keeps one index file per function, which two processes can overwrite for each
other (numba#10486), and does not see an edited callee in another file. Here every compiled
signature is one file whose name is a hash of all that it depends on: the source text, the whole
``kernels`` folder, the versions of Numba, llvmlite and Python, the signature and the CPU. A file
is written under a temporary name and moved into place, so a reader never sees half of one.

Start reading at ``compile_source``.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import inspect
import linecache
import os
import pickle
import re
import sys
import tempfile
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core import sigutils
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher
from numba.core.runtime import rtsys

from ..collector import seldom
from .forks import COMPILING, LLVM, held_during_forks
from .interrupts import held
from .numba_compiler import (
    AllocatingCompiler,
    OwnCompiler,
    PartCompiler,
    ProgramCompiler,
    entered_by_words,
    loaded,
)
from .origin import ours
from .quick_numba import quick

_KERNELS = Path(__file__).parent
_loading = threading.Lock()
held_during_forks(COMPILING, _loading, LLVM)


def cache_folder() -> Path:
    """The folder of numbagrad's compiled code: ``NUMBA_CACHE_DIR``, else the user's cache."""
    chosen = numba.config.CACHE_DIR or os.environ.get("XDG_CACHE_HOME")
    if chosen:
        return Path(chosen) / "numbagrad"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData/Local") / "numbagrad" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches/numbagrad"
    return Path.home() / ".cache/numbagrad"


@functools.cache
def writable_folder(folder: Path) -> Path | None:
    """``folder`` if files can be written there, else None after one warning."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        warnings.warn(
            f"numbagrad cannot write its cache of compiled kernels ({error}); kernels are compiled "
            f"anew in each process. Set NUMBA_CACHE_DIR to a writable folder to keep them.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return folder


@functools.cache
def library_stamp() -> str:
    """Hash of every file of CPU kernels and of the versions that decide what they compile to."""
    digest = hashlib.sha256()
    digest.update(f"{numba.__version__} {llvmlite.__version__} {sys.version_info[:2]}".encode())
    ours = [p for p in _KERNELS.rglob("*.py") if not p.is_relative_to(_KERNELS / "cuda")]
    for path in sorted(ours):
        digest.update(str(path.relative_to(_KERNELS)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


class OneFilePerSignature:
    """Stands in for Numba's index and data files: load and save by the hash of the key."""

    def __init__(self, name: str, stamp: str):
        self._name, self._stamp = name, stamp

    def path(self, folder: Path, key: Any) -> Path:
        text = f"{self._stamp} {key!r}".encode()
        return folder / f"{self._name}-{hashlib.sha256(text).hexdigest()[:24]}.nbc"

    def load(self, key: Any) -> Any:
        path = self.path(cache_folder(), key)
        try:
            content = path.read_bytes()
            if checksum(content[_CHECKSUM:]) != content[:_CHECKSUM]:
                raise ValueError("wrong checksum")
            if b"_numba_hashsecret" in content:  # symbols that the code of dicts and sets calls
                importlib.import_module("numba.cpython.hashing")
            return pickle.loads(memoryview(content)[_CHECKSUM:])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except Exception as error:  # a damaged file must cost a compile, not the user's program
            text = f"numbagrad ignores the unreadable cache file {path}: {error!r}"
            warnings.warn(text, RuntimeWarning, stacklevel=2)
            return None

    def save(self, key: Any, data: Any) -> None:
        folder = writable_folder(cache_folder())
        if folder is not None:
            content = numba.core.serialize.dumps(data)
            write_whole(self.path(folder, key), checksum(content) + content)

    def flush(self) -> None:
        """Nothing to do: a file whose key no longer occurs is never read."""


def checksum(content: bytes) -> bytes:
    """What stands before the content of a cache file: one wrong bit of machine code may crash."""
    return hashlib.sha256(content).digest()


_CHECKSUM = len(checksum(b""))


def write_whole(path: Path, content: bytes) -> bool:
    """Write ``content`` so that readers see all of it or none; False when the disk refuses."""
    handle, name = None, ""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)
        return True
    except OSError as error:
        if name:
            Path(name).unlink(missing_ok=True)
        warnings.warn(f"numbagrad could not write {path}: {error}", RuntimeWarning, stacklevel=2)
        return False


elsewhere: list[Callable[[Path], None]] = []
"""Told which file is about to be looked for: they return once nobody else is making it."""

listeners: list[Callable[[str, float], None]] = []
"""Told whose code came from disk, and when, by ``time.perf_counter``, it was asked for."""


class KernelCache(FunctionCache):
    """Numba's function cache over ``OneFilePerSignature``.

    recipe: what ``jit`` was given.
    """

    recipe: tuple[types.FunctionType, str | None, dict[str, Any]]

    def __init__(self, function: types.FunctionType, source: str):
        self._name = repr(function)
        self._py_func = function
        self._impl = object.__new__(CompileResultCacheImpl)  # its locator is what we replace
        stamp = hashlib.sha256(f"{library_stamp()} {source}".encode()).hexdigest()
        self._cache_file = OneFilePerSignature(function.__name__, stamp)
        self._cache_path = str(cache_folder())
        self.enable()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled code on disk, or None.

        Numba first refreshes the target: 0.3 s for the 40 modules (SciPy's linalg among them) with
        which it types and lowers. Machine code needs none of them, only symbols, and those are
        there. The first compilation still refreshes.
        """
        asked = time.perf_counter()
        rtsys.initialize(target_context)
        for wait in tuple(elsewhere):
            wait(self.path(sig, target_context))
        with self._guard_against_spurious_io_errors():
            found = self._load_overload(sig, target_context)
        if found is not None:
            found = loaded(found)
            for tell in tuple(listeners):
                tell(self._py_func.__name__, asked)
        return found

    def path(self, sig: Any, target_context: Any) -> Path:
        """The file of a signature."""
        key = self._index_key(sig, target_context.codegen())
        return self._cache_file.path(cache_folder(), key)

    def _save_overload(self, sig: Any, data: Any) -> None:
        if self._enabled and not data.lifted and not data.library.has_dynamic_globals:
            self._cache_file.save(self._index_key(sig, data.codegen), self._impl.reduce(data))


def _outlines(function: types.FunctionType) -> bool:
    """Whether loops over ``prange`` are all that is parallel in it: it is ours, or generated."""
    generated = text_of_module(function.__module__) is not None
    return not numba.config.DISABLE_JIT and (generated or ours(function))


def _outline_when_compiled(dispatcher: Any, fastmath: set[str], allocates: bool) -> None:
    """What is on disk needs no look at the function's text."""

    @functools.cache
    def body() -> types.FunctionType:
        from .outline import outlined

        return outlined(dispatcher.py_func, fastmath, allocates)

    dispatcher._compiler._get_implementation = lambda args, kws: body()


def jit(function: types.FunctionType, source: str | None = None, **options: Any) -> Any:
    """``numba.njit`` with numbagrad's options and cache.

    source: what the cache key is made from; by default the text of a user's function, of what it
    calls and of what it reads. ``library_stamp`` has the files of our own. allocates: whether it
    makes arrays, by default true of a user's alone: without, Numba counts no references to arrays,
    which is a tenth of compiling and 25 ns a call for each array. A user's ``@njit`` function that
    such code called would count none either, wherever else it is called: False is for code of ours,
    which calls nothing else. program: whether Python alone calls it.
    """
    recipe = function, source, options.copy()
    allocates = options["_nrt"] = options.pop("allocates", not ours(function))
    # Not arcp: LLVM would estimate 1 / sqrt(x) in float32, which gives NaN at 0 and inf.
    fastmath = {"contract", "nsz"}
    program = options.pop("program", False)
    if options.pop("reassoc", False):
        fastmath.add("reassoc")
    # Nothing enters a kernel as a C function: 15 ms less for each signature.
    options = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, **options}
    if ours(function):
        compiler = AllocatingCompiler if allocates else OwnCompiler
    elif allocates:
        compiler = Compiler
    elif options.get("no_cpython_wrapper"):  # a text of ours
        compiler = PartCompiler
    else:
        compiler = ProgramCompiler if program else OwnCompiler
    shared = options.get("parallel") and _outlines(function)
    if shared:
        del options["parallel"]
    dispatcher = numba.njit(pipeline_class=compiler, fastmath=fastmath, **options)(function)
    if shared:
        from .crew import load_crew

        load_crew()
        _outline_when_compiled(dispatcher, fastmath, allocates)
    # Code of a function whose module nobody can import, as after ``exec``, cannot be loaded.
    if not numba.config.DISABLE_JIT and function.__module__ in sys.modules:
        if source is None:
            source = _place(function) if ours(function) else source_with_globals(function)
        dispatcher._cache = KernelCache(function, f"{source} {sorted(fastmath)} {recipe[2]}")
        dispatcher._cache.recipe = recipe
        dispatcher._compiler.compile = _compiling()(dispatcher._compiler.compile)
        dispatcher.__class__ = _Whole
    if not numba.config.DISABLE_JIT and compiler in _ENTERED:
        dispatcher.__class__ = _Entered
    return dispatcher


_ENTERED = (AllocatingCompiler, OwnCompiler, ProgramCompiler)
"""Compilers of what may have no way in from Python of its own."""


class _Whole(CPUDispatcher):
    """A dispatcher that an interrupt leaves only when its code, compiled or loaded, is kept."""

    def compile(self, sig: Any) -> Any:
        with held():
            super().compile(sig)
        args, _ = sigutils.normalize_signature(sig)
        return self.overloads[tuple(args)].entry_point


class _Entered(_Whole):
    """One whose functions may have no way in from Python of their own."""

    def add_overload(self, cres: Any) -> None:
        kept = self.targetoptions
        bare = kept.get("no_cpython_wrapper")  # nobody enters it from Python
        if not bare and entered_by_words(cres.signature.args, cres.signature.return_type):
            from .entered import entry

            cres = cres._replace(entry_point=entry(cres, not kept["nogil"]))
            self.targetctx.insert_user_function(cres.entry_point, cres.fndesc, [cres.library])
        super().add_overload(cres)


@contextmanager
def _compiling() -> Iterator[None]:
    """What is spared Numba while it compiles: passes of the collector, an import, detours."""
    _believe_in_blas()
    with seldom(), quick():
        yield


@functools.cache
def _believe_in_blas() -> None:
    """Tell Numba, before its first compilation, that SciPy has a BLAS, which we depend on.

    To see for itself it imports ``scipy.linalg``: 0.2 s. It looks again where a user's kernel
    multiplies with ``@``; ours have ``blas.py``.
    """
    if "numba.np.arraymath" in sys.modules:
        return
    linalg: Any = importlib.import_module("numba.np.linalg")
    sees = getattr(linalg, "ensure_blas", None)
    linalg.ensure_blas = lambda: None
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        if sees is None:  # a Numba that names it otherwise
            del linalg.ensure_blas
        else:
            linalg.ensure_blas = sees


def _place(function: types.FunctionType) -> str:
    """What tells a function from the others of our kernels, whose text ``library_stamp`` has."""
    line = function.__code__.co_firstlineno
    return f"{function.__module__}.{function.__qualname__} {line}"


def source_with_globals(function: types.FunctionType) -> str:
    """The text of ``function``, of the functions it calls, and the values of its globals.

    Numba compiles all of them in, so an edit of any of them must give another cache key.
    """
    texts: list[str] = []
    waiting, seen = [function], {function}
    while waiting:
        each = waiting.pop()
        texts.append(_text_of(each))
        names = inspect.getclosurevars(each)
        for name, value in sorted({**names.globals, **names.nonlocals}.items()):
            called = getattr(value, "py_func", getattr(value, "function", value))
            if isinstance(called, types.FunctionType):
                if called not in seen:
                    seen.add(called)
                    waiting.append(called)
            elif isinstance(value, np.ndarray):
                texts.append(f"{name} = {value.dtype} {value.shape} {value.tolist()}")
            elif isinstance(value, _PLAIN):
                texts.append(f"{name} = {value!r}")
    return "\n".join(texts)


_PLAIN = (int, float, complex, str, bytes, tuple, type, np.dtype, numba.types.Type)
"""Values whose ``repr`` says all that code made with them depends on."""


def _text_of(function: types.FunctionType) -> str:
    """The source of a function, or what stands for it where there is no file."""
    try:
        return source_of(function)
    except (OSError, TypeError):
        return _text_of_code(function.__code__)


def source_of(function: types.FunctionType) -> str:
    """The source of a function. Raises OSError where there is none.

    From Python 3.13 on ``inspect`` gives for what ``exec`` has made a piece of another text, if the
    program itself is one: both are called ``<string>``.
    """
    if function.__code__.co_filename == "<string>":
        raise OSError("could not get source code")
    return inspect.getsource(function)


def _text_of_code(code: types.CodeType) -> str:
    """Bytecode, names and constants; without addresses, so the same in each process."""
    constants = [
        _text_of_code(value) if isinstance(value, types.CodeType) else repr(value)
        for value in code.co_consts
    ]
    return repr((code.co_code, constants, code.co_names))


def content_name(prefix: str, text: str) -> str:
    """A name that changes whenever the text does."""
    return f"{prefix}_{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def load_source(text: str, prefix: str) -> types.ModuleType:
    """Import generated ``text`` as a module named by its content.

    The module enters ``sys.modules`` before it runs, because Numba looks it up by name when it
    loads cached code, and ``linecache``, so that tracebacks and ``inspect`` show the text.
    """
    name = content_name(f"numbagrad_{prefix}", text)
    with held(), _loading:  # another thread must not find the module before its text has run
        module = sys.modules.get(name)
        if module is None:
            filename = f"<{name}>"
            module = types.ModuleType(name)
            module.__file__ = filename
            linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
            sys.modules[name] = module
            try:
                exec(compile(text, filename, "exec"), module.__dict__)
            except BaseException:
                del sys.modules[name]
                raise
    return module


def text_of_module(name: str) -> str | None:
    """The text that ``load_source`` made a module of; None of any other module."""
    module = sys.modules.get(name)
    filename = getattr(module, "__file__", None)
    if filename != f"<{name}>":
        return None
    return "".join(linecache.getlines(filename))


_COMMENT = re.compile(r"^ *#.*\n", re.MULTILINE)


def without_comments(text: str) -> str:
    """``text`` without the lines that are nothing but a comment."""
    return _COMMENT.sub("", text)


def compile_source(text: str, function: str, **options: Any) -> Any:
    """The function named ``function`` of generated ``text``, jitted and cached by content.

    Comments are no content: those of a compiled step tell of the user's lines.
    """
    text = without_comments(text)
    module = load_source(text, function)
    return jit(getattr(module, function), source=text, **options)


def made(dispatcher: Any, signature: tuple[Any, ...]) -> bool:
    """Whether a dispatcher of ``jit`` has code for Numba types, here or on disk."""
    if numba.config.DISABLE_JIT or signature in dispatcher.overloads:
        return True
    return dispatcher._cache.path(signature, dispatcher.targetctx).exists()


def address_of_compiled(dispatcher: Any, signature: tuple[Any, ...]) -> int:
    """Compile a dispatcher for Numba types; the address of its native code."""
    if numba.config.DISABLE_JIT:
        return id(dispatcher)
    dispatcher.compile(signature)
    result = dispatcher.overloads[signature]
    return result.library.get_pointer_to_function(result.fndesc.llvm_func_name)


def entry_of_compiled(dispatcher: Any, signature: tuple[Any, ...]) -> Any:
    """Compile a dispatcher for Numba types; its way in from Python, which looks at no types."""
    if numba.config.DISABLE_JIT:
        return dispatcher
    dispatcher.compile(signature)
    return dispatcher.overloads[signature].entry_point
