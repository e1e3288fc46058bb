"""The threads that share loops. They wait awake for a while, so that to share one costs 0.5 us.

The parts of a loop are numbered. The thread that comes to the loop runs part 0, workers run those
of their own numbers, and a part whose worker has not begun it when part 0 is done is run by the
former too: nobody waits for a thread that sleeps, that another process keeps from its core, or that
a fork has left behind. A loop inside of a part, and one that another thread comes to meanwhile, is
run by the thread that comes to it.

Numba's own pool takes 4 to 6 us, as it makes an arena of its threads for each loop: with that two
threads were slower than one up to 0.1 million numbers. A user's ``@njit(parallel=True)`` function
has it still. Start reading at ``_share``.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba import types
from numba.core import cgutils

from . import store
from .inner import inner, intrinsic
from .intrinsics import load
from .intrinsics import store as put
from .numba_compiler import address_by_words
from .pieces import crew_places

__all__ = ["AVAILABLE", "MOST", "SHARE", "STATE", "load_crew"]

SHARE, STATE = "numbagrad_share", "numbagrad_crew"
"""The names by which compiled code knows ``_share``, entered by words, and the state."""

_X86 = platform.machine().lower() in ("x86_64", "amd64")

AVAILABLE = os.name == "posix" and (_X86 or platform.machine().lower() in ("aarch64", "arm64"))
"""Whether there is a crew: else loops go to Numba's pool."""

MOST = 256
"""Most parts of a loop."""

SPINS = 100_000
"""How often a worker looks for work before it sleeps: for some 5 ms. Linux wakes a thread on the
core of its waker, where it comes too late: workers that slept between two operations, after 0.2 ms,
made gradients of reductions of 4 MB a quarter to a half slower."""

PATIENCE = 200
"""How often the thread that shared a loop looks for its end before it lets others run."""

LINE = 8
"""Words of a line of the cache: what a thread writes again and again has one of its own."""

BUSY, JOB, PART, RECORD, ASLEEP, WORKERS, WORKER, THREAD = (LINE * k for k in range(8))
MUTEX, CONDITION, GIVEN = 8 * LINE, 16 * LINE, 24 * LINE
CLAIMED = GIVEN + 2 * MOST
DONE, EACH = CLAIMED + LINE, 2 * LINE
WORDS = CLAIMED + EACH * MOST
"""Places in the state. Whether a loop is shared; its number, and in the lowest bits of the same
word how many parts it has; its function, and what that is given; how many workers sleep, how many
there are, where they begin, and the name of the last one; what they sleep on; what each begins
with. Then, ``EACH`` words for each part, in which loop it was claimed last, and done."""

_BITS = 16
"""Of the word ``JOB``, for the number of parts."""

_WORD, _INT = ir.IntType(64), ir.IntType(32)


@intrinsic
def _read(typing, state, k):
    """A word that other threads write."""

    def generate(context, b, signature, args):
        return b.load_atomic(b.gep(args[0], [args[1]]), "seq_cst", 8)

    return types.int64(state, types.int64), generate


@intrinsic
def _write(typing, state, k, value):
    """Set a word that other threads read."""

    def generate(context, b, signature, args):
        b.store_atomic(args[2], b.gep(args[0], [args[1]]), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(state, types.int64, types.int64), generate


@intrinsic
def _exchange(typing, state, k, before, after):
    """Set a word to ``after`` if it is ``before``; whether it was."""

    def generate(context, b, signature, args):
        place = b.gep(args[0], [args[1]])
        found = b.cmpxchg(place, args[2], args[3], "seq_cst", "seq_cst")
        return b.extract_value(found, 1)

    return types.boolean(state, types.int64, types.int64, types.int64), generate


@intrinsic
def _pause(typing):
    """Tell the processor that this thread waits."""
    name, given = ("llvm.x86.sse2.pause", []) if _X86 else ("llvm.aarch64.hint", [_INT(1)])

    def generate(context, b, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [each.type for each in given])
        b.call(cgutils.get_or_insert_function(b.module, kind, name), given)
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def _address(typing, state, k):
    """The address of a word."""

    def generate(context, b, signature, args):
        return b.ptrtoint(b.gep(args[0], [args[1]]), _WORD)

    return types.int64(state, types.int64), generate


@intrinsic
def _run(typing, part, number, record):
    """Run a part of a loop: see ``outline``."""
    kinds = types.int64, types.int64, types.int64

    def generate(context, b, signature, args):
        kind = ir.FunctionType(ir.VoidType(), [_WORD, _WORD])
        b.call(b.inttoptr(args[0], kind.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(*kinds), generate


def _external(name: str, given: int) -> Any:
    """A C function of so many words, which returns an int."""
    return types.ExternalFunction(name, types.int32(*[types.int64] * given))


_create = _external("pthread_create", 4)
_detach = _external("pthread_detach", 1)
_lock = _external("pthread_mutex_lock", 1)
_unlock = _external("pthread_mutex_unlock", 1)
_wait = _external("pthread_cond_wait", 2)
_wake = _external("pthread_cond_broadcast", 1)
_let_others_run = _external("sched_yield", 0)


@inner
def _claim(state, number, job):
    """Whether the caller is the one that runs a part: once in each loop somebody is."""
    place = CLAIMED + EACH * number
    before = _read(state, place)
    return before < job and _exchange(state, place, before, job)


@inner
def _hire(state, wanted):
    """Begin workers until there are as many, or the system gives no more."""
    workers = load(state, WORKERS)
    while workers < wanted:
        workers += 1
        given = GIVEN + 2 * workers
        put(state, given, _address(state, 0))
        put(state, given + 1, workers)
        thread = _address(state, THREAD)
        if _create(thread, 0, load(state, WORKER), _address(state, given)) != 0:
            return
        _detach(load(state, THREAD))
        put(state, WORKERS, workers)


def _share(state, part, record, parts):
    """Run ``part(number, record)`` for each number below ``parts``."""
    if not _exchange(state, BUSY, 0, 1):
        for number in range(parts):
            _run(part, number, record)
        return
    _hire(state, parts - 1)
    put(state, PART, part)
    put(state, RECORD, record)
    job = (_read(state, JOB) >> _BITS) + 1
    _write(state, JOB, (job << _BITS) + parts)
    if _read(state, ASLEEP) > 0:
        _lock(_address(state, MUTEX))
        _wake(_address(state, CONDITION))
        _unlock(_address(state, MUTEX))
    _run(part, 0, record)
    for number in range(1, parts):
        if _claim(state, number, job):
            _run(part, number, record)
            _write(state, DONE + EACH * number, job)
    for number in range(1, parts):
        looks = 0
        while _read(state, DONE + EACH * number) != job:
            looks += 1
            if looks < PATIENCE:
                _pause()
            else:
                _let_others_run()
    _write(state, BUSY, 0)


def _work(state, number):
    """What a worker does all its life.

    It may be late and see a loop that is over: then its part has been claimed, by itself or not.
    """
    seen = 0
    while True:
        now, looks = _read(state, JOB), 0
        while now == seen:
            looks += 1
            if looks < SPINS:
                _pause()
            else:
                _lock(_address(state, MUTEX))
                _write(state, ASLEEP, _read(state, ASLEEP) + 1)
                while _read(state, JOB) == seen:
                    _wait(_address(state, CONDITION), _address(state, MUTEX))
                _write(state, ASLEEP, _read(state, ASLEEP) - 1)
                _unlock(_address(state, MUTEX))
            now = _read(state, JOB)
        seen, job, parts = now, now >> _BITS, now & ((1 << _BITS) - 1)
        if number < parts and _claim(state, number, job):
            _run(load(state, PART), number, load(state, RECORD))
            _write(state, DONE + EACH * number, job)


@functools.cache
def load_crew() -> None:
    """Make the crew, and the symbols by which loops know it: before one is run."""
    if not AVAILABLE:
        return
    words = types.CPointer(types.int64)
    # Never freed, for workers look at it until the process has ended.
    libc = ctypes.CDLL(None)
    libc.calloc.restype = ctypes.c_void_p
    state = -(-libc.calloc(WORDS + LINE, 8) // (8 * LINE)) * 8 * LINE
    begin = _by_words(_work, (words, types.int64))
    ctypes.c_int64.from_address(state + 8 * WORKER).value = begin
    _begin_anew(libc, state)
    os.register_at_fork(after_in_child=functools.partial(_begin_anew, libc, state))
    llvmlite.binding.add_symbol(STATE, state)
    share = _by_words(_share, (words, types.int64, types.int64, types.int64))
    llvmlite.binding.add_symbol(SHARE, share)
    crew_places[1] = state
    crew_places[0] = share  # last: who finds it uses both


_kept: list[Any] = []


def _by_words(function: Any, signature: tuple[Any, ...]) -> int:
    """The address of a function of ours, entered by words."""
    dispatcher = store.jit(function, no_cpython_wrapper=True)
    dispatcher.compile(signature)
    _kept.append(dispatcher)
    return address_by_words(dispatcher.overloads[signature])


def _begin_anew(libc: Any, state: int) -> None:
    """Nobody works: at the start, and in a child that a fork has made."""
    for place in (BUSY, ASLEEP, WORKERS):
        ctypes.c_int64.from_address(state + 8 * place).value = 0
    job = ctypes.c_int64.from_address(state + 8 * JOB)  # that of the parent is none of ours
    job.value = ((job.value >> _BITS) + 1) << _BITS
    libc.pthread_mutex_init(ctypes.c_void_p(state + 8 * MUTEX), None)
    libc.pthread_cond_init(ctypes.c_void_p(state + 8 * CONDITION), None)
