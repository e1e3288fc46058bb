"""From the text of PTX to statements: one list for an entry, with what it calls put in its place.

A statement keeps its words as they are; registers, labels and parameters of a function that was
put in place get a prefix of their own. Parameters of calls become registers. Start at ``parse``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["Array", "Kernel", "NotCovered", "Statement", "parse"]


class NotCovered(Exception):
    """The machine does not know this piece of PTX: it never guesses."""


@dataclass(frozen=True)
class Statement:
    """``@guard name operands``, or a label. ``braces`` in an operand make it a tuple."""

    name: str
    operands: tuple[str | tuple[str, ...], ...] = ()
    guard: str = ""
    text: str = ""

    def __str__(self) -> str:
        return self.text or self.name


@dataclass(frozen=True)
class Array:
    """What ``.shared``, ``.local`` or ``.global`` declares: bytes, alignment, and first bytes."""

    name: str
    space: str
    align: int
    size: int
    content: bytes = b""


@dataclass
class Kernel:
    """An entry: its parameters, its arrays, and its statements."""

    name: str
    parameters: list[tuple[str, str]] = field(default_factory=list)
    arrays: dict[str, Array] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    registers: set[str] = field(default_factory=set)
    ranges: set[str] = field(default_factory=set)
    """Names of registers, and what numbers follow on in others, as ``%r<9>`` declares them."""


@dataclass
class _Function:
    results: list[str]
    parameters: list[tuple[str, str]]
    body: list[str]
    entry: bool


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_ARRAY = re.compile(
    r"\.(shared|local|global|const)\s+(?:\.align\s+(\d+)\s+)?\.([bsuf]\d+)\s+([\w$]+)"
    r"(?:\[(\d*)\])?\s*(?:=\s*\{([^}]*)\}|=\s*([\w.]+))?$"
)
_HEAD = re.compile(
    r"(?:\.visible\s+|\.weak\s+|\.extern\s+)?\.(entry|func)\s*(\([^)]*\))?\s*([\w$]+)\s*"
    r"(?:\(([^)]*)\))?"
)
_LABEL = re.compile(r"([\w$]+):\s*")
_SIZES = {"8": 1, "16": 2, "32": 4, "64": 8}


def parse(text: str) -> Kernel:
    """The one entry in ``text``."""
    functions, declared = {}, {}
    text = _COMMENT.sub(" ", text)
    for piece in _pieces(text):
        head = _HEAD.match(piece[0])
        if head is None:
            found = _array(re.sub(r"\.(visible|common|extern)\b", "", piece[0]).strip())
            if found is not None:
                declared[found.name] = found
        elif piece[1] is not None:
            results = re.findall(r"([\w$]+)(?:\[\d+\])?\s*[,)]", head[2] or "")
            parameters = re.findall(r"\.param\s+(?:\.align \d+ )?\.(\w+)\s+([\w$]+)", head[4] or "")
            pairs = [(name, kind) for kind, name in parameters]
            functions[head[3]] = _Function(results, pairs, piece[1], head[1] == "entry")
    (name,) = [n for n, f in functions.items() if f.entry]
    kernel = Kernel(name, functions[name].parameters, dict(declared))
    _place(kernel, functions, name, "", [0])
    return kernel


def _pieces(text: str):
    """Head and statements of each function; declarations stand alone."""
    at = 0
    while True:
        end = re.compile(r"[;{]").search(text, at)
        if end is None:
            return
        head = text[at : end.start()].strip()
        if end[0] == "{" and _HEAD.search(head):
            close = _closing(text, end.start())
            yield _directives(head), text[end.end() : close].split(";")
            at = close + 1
        else:
            stop = text.index(";", end.start())
            yield _directives(text[at:stop].strip()), None
            at = stop + 1


def _directives(head: str) -> str:
    """``head`` without what the file begins with."""
    return re.sub(r"^(?:\s*\.(?:version|target|address_size)[^\n]*\n)+", "", head + "\n").strip()


def _closing(text: str, at: int) -> int:
    """Where the brace that opens at ``at`` is closed."""
    depth = 0
    for found in re.compile(r"[{}]").finditer(text, at):
        depth += 1 if found[0] == "{" else -1
        if depth == 0:
            return found.start()
    raise NotCovered("a brace is not closed")


def _array(words: str) -> Array | None:
    """A declared array; None for anything else."""
    found = _ARRAY.match(" ".join(words.split()))
    if found is None:
        return None
    space, align, kind, name, count, content, single = found.groups()
    size, raw = _SIZES[kind[1:]], b""
    numbers = content.split(",") if content else [single] if single else []
    for number in numbers:
        raw += (int(number, 0) % (1 << 8 * size)).to_bytes(size, "little")
    length = 1 if count is None else int(count or 0)  # none is said where the launch says it
    return Array(name, space, int(align or size), size * length, raw)


def _place(kernel: Kernel, functions: dict, name: str, prefix: str, calls: list[int]) -> None:
    """Append the statements of a function, its names with ``prefix``, to the kernel's."""
    for chunk in functions[name].body:
        for each in _unscoped(chunk):
            if each.startswith("."):
                found = _array(each)
                if found is not None:
                    own = Array(prefix + found.name, *list(vars(found).values())[1:])
                    kernel.arrays[own.name] = own
                elif each.startswith(".reg"):
                    names = each.split(maxsplit=2)[2].split(",")
                    for declared, several, _ in (n.strip().partition("<") for n in names):
                        (kernel.ranges if several else kernel.registers).add(prefix + declared)
                elif not each.startswith((".param", ".pragma", ".loc", ".branchtargets")):
                    raise NotCovered(f"{kernel.name}: {each}")
            elif each.startswith("call"):
                _call(kernel, functions, each, prefix, calls)
            else:
                kernel.statements.append(_statement(each, prefix))


def _unscoped(chunk: str) -> list[str]:
    """The statement in ``chunk``, and labels before it, without braces of scopes."""
    found, rest = [], " ".join(chunk.split())
    while True:
        rest = rest.lstrip("{} ")
        label = _LABEL.match(rest)
        if label is None:
            return [*found, rest] if rest else found
        found.append(label[0].strip())
        rest = rest[label.end() :]


def _statement(words: str, prefix: str) -> Statement:
    if words.endswith(":"):
        return Statement("label", (prefix + words[:-1],), "", words)
    guard, rest = "", words
    if words.startswith("@"):
        guard, rest = words[1:].split(maxsplit=1)
        guard = ("!" if guard[0] == "!" else "") + prefix + guard.lstrip("!")
    name, _, rest = rest.partition(" ")
    operands = [
        tuple(_operand(part, prefix) for part in braces.split(","))
        if braces
        else _operand(plain, prefix)
        for braces, plain in re.findall(r"\{([^}]*)\}|([^,{}]+)", rest)
        if braces or plain.strip()
    ]
    return Statement(name, tuple(operands), guard, words)


def _operand(word: str, prefix: str) -> str:
    """A register, label or parameter with its prefix; numbers and special registers as they are."""
    word = "".join(word.split())
    if not prefix:
        return word
    return _NAME.sub(lambda found: found[0] if found[0] in SPECIAL else prefix + found[0], word)


_NAME = re.compile(r"(?<![\w.%$])[%$A-Za-z_][\w$.]*")
SPECIAL = (
    *(f"%{name}.{axis}" for name in ("tid", "ntid", "ctaid", "nctaid") for axis in "xyz"),
    "%laneid", "%warpid", "WARP_SZ",
)  # fmt: skip


def _call(kernel: Kernel, functions: dict, words: str, prefix: str, calls: list[int]) -> None:
    """Put the function that is called in the place of the call."""
    found = re.match(
        r"call(?:\.uni)?\s*(?:\(([^)]*)\)\s*,)?\s*([\w$]+)\s*(?:,\s*\(([^)]*)\))?", words
    )
    if found is None or found[2] not in functions:
        raise NotCovered(f"{kernel.name}: {words}")
    calls[0] += 1
    inner, function = f"{found[2]}@{calls[0]}.", functions[found[2]]
    kernel.statements.append(Statement("enter", (inner,), "", words))
    given = [w.strip() for w in (found[3] or "").split(",") if w.strip()]
    taken = [w.strip() for w in (found[1] or "").split(",") if w.strip()]
    for (name, _), outer in zip(function.parameters, given, strict=True):
        kernel.statements.append(Statement("alias", (inner + name, prefix + outer), "", words))
    for name, outer in zip(function.results, taken, strict=True):
        kernel.statements.append(Statement("alias", (inner + name, prefix + outer), "", words))
    _place(kernel, functions, found[2], inner, calls)
    kernel.statements.append(Statement("leave", (inner,), "", words))
