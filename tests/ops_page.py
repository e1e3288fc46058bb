"""docs/ops.md as text, made from the op table: what there is, for which dtypes, how far it goes.

Start reading at ``page``. ``test_ops_page`` compares it with the file.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cases import FAMILIES
from compiled.op_rows import PARTLY, REFUSED
from op_table import FLOATS, Case
from scope import FUNCTIONAL, GROUPS, has, missing

import numbagrad as ng
from benchmarks.cuda_gaps import LAPACK, ON_THE_HOST

TITLES = {
    "elementwise": "Elementwise",
    "special": "Special functions",
    "numbers": "Parts of numbers, and functions of whole ones",
    "special_module": "The module `special`, and incomplete gamma functions",
    "reduce": "Reductions and running sums",
    "shape": "Shapes and views",
    "index": "Indexing",
    "linalg": "Products and linear algebra",
    "linalg_further": "More linear algebra",
    "factors": "Reflections, low rank, segments, boxes",
    "norm": "Softmax and norms",
    "loss": "Losses",
    "combined": "Made of others",
    "rarer": "Rarer names",
    "create": "Making and filling tensors",
    "sort": "Sorting and searching",
    "conv": "Convolutions and pooling",
    "spatial": "Padding, resizing, patches, distances",
    "recurrent": "Recurrent networks",
    "attention": "Attention",
}

NOTES = {
    "asinh": "the in-place form is differentiable",
    "acosh": "the in-place form is differentiable",
    "atanh": "the in-place form is differentiable",
    "linalg.lstsq": "`rank` and residuals carry no gradient",
    "unique": "sorted always",
    "bincount": "compiled, with `minlength`",
    "histogram": "compiled, with `range` or edges",
    "nn.functional.one_hot": "compiled, with `num_classes`",
    "rand": "other numbers than PyTorch's for the same seed; the same on CPU and GPU",
    "randn": "as `rand`",
    "randint": "as `rand`",
    "randperm": "as `rand`",
    "multinomial": "as `rand`",
    "bernoulli": "as `rand`",
    "normal": "as `rand`",
    "nn.functional.dropout": "as `rand`",
    "nn.functional.max_pool1d": "as `max_pool2d`",
    "nn.functional.max_pool2d": "a window of nothing but padding is refused",
    "nn.functional.max_pool3d": "as `max_pool2d`",
    "getitem": "compiled, `x[i]` with a 0-d tensor `i` copies",
}
"""What a user of PyTorch should know, where it is more than the columns say."""

WITHOUT_LAPACK = {
    "linalg.vector_norm": "yes",
    "linalg.cross": "yes",
    "linalg.diagonal": "yes",
    "linalg.vecdot": "yes",
    "linalg.norm": "partly",
    "linalg.matrix_norm": "partly",
    "linalg.matrix_power": "partly",
    "linalg.multi_dot": "yes",
    "linalg.vander": "yes",
    "matrix_power": "partly",
}
"""Of ``linalg``, what runs on a GPU: products, and norms that need no singular values."""

NO_GPU = ("unique", "unique_consecutive")
"""Functions of the host that refuse a tensor on a GPU."""

DIFFERENTIABLE = """
    float type type_as view_as expand_as reshape_as sgn nansum nanmean cholesky lu_unpack
    as_tensor asarray
""".split()
"""Functions whose results have gradients of any order that their rows do not check."""

PARTLY_HERE = ("bincount", "histogram", "nn.functional.one_hot")
"""Functions that are recorded when told how large the result is, which their rows leave out."""

HEAD = """\
# Operations

<!-- Written by tests/test_ops_page.py from the op table; run it with NUMBAGRAD_WRITE_DOCS=1. -->

Every operation, as the tests know it: each row stands for calls whose values are compared with
NumPy's or SciPy's, whose gradients with differences, and the same rows run on PyTorch, so that
arguments, dtypes and errors are known to agree. Names and arguments are PyTorch's.

| Column | Says |
|---|---|
| Call | the function and its arguments; `x.name` if there is only a method; [other names] |
| Method | whether `x.name(...)` exists too; `_` if `x.name_(...)` writes into x |
| Dtypes | `f` float32 and float64, `i` the ints, `b` bool |
| Gradient | `any` order, or how many; `-` where there is none |
| GPU | whether it runs there; `host` where it has nothing to do there |
| Compiled | whether `ng.compile` records it: `partly` where some calls depend on values |

Everything on a GPU is checked in Numba's simulator and by compiling, and most of it ran on an
NVIDIA H200; see [cuda.md](cuda.md#what-has-never-run-on-hardware).
What takes float32 takes float16 and bfloat16 too, but for `nextafter`, `quantile`, `nanquantile`
and `ctc_loss`.
Complex numbers, sparse and quantised tensors, and `fft` do not exist.

## Results into tensors you have: `out=`

Functions that show `out=None` write into a tensor, or a tuple of tensors where they give several,
and return it; so do all that take it in PyTorch. Methods and `nn.functional` do not take it.

```python
import numbagrad as ng

x, total = ng.ones(3), ng.empty(3)
assert ng.add(x, 1, out=total) is total
values, indices = ng.empty(3), ng.empty(3, dtype=ng.int64)
ng.sort(x, out=(values, indices))
```

An `out` of another shape is resized, with a warning unless it was empty; its dtype may be any that
the result's can be cast to; where gradients are on, nothing may require grad. `zeros`, `randn` and
others that make tensors take dtype and device from it. Elementwise functions and matrix products
write straight into an `out` that fits, on both devices and in compiled functions; of large results
on the CPU, from 256 KB on, so do reductions, running sums, `cat`, `stack`, `clamp`, `pow`, `where`,
`softmax` and some more. Others copy their result. It differs from PyTorch's:

- An `out` that is one of the inputs is right with every function; one that overlaps an input partly
  is refused by every function.
- The result is cast where PyTorch's `mm`, `sort`, `linalg` and others want its very dtype; a sum is
  taken in its own dtype and cast after, so that floats do not go into an `out` of ints.
- An `out` is not resized while views of it live, if it requires grad, or beyond the memory that it
  is a view of.
"""


@dataclass(frozen=True)
class Entry:
    """The rows of one operation."""

    name: str
    cases: tuple[Case, ...]


def entries(cases: list[Case]) -> list[Entry]:
    """Rows of a family by the operation they belong to."""
    found: dict[str, list[Case]] = {}
    for case in cases:
        found.setdefault(case.function_name or case.name.split("-")[0], []).append(case)
    return [Entry(name, tuple(rows)) for name, rows in found.items()]


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for family, cases in FAMILIES.items():
        parts.append(f"## {TITLES[family]}\n")
        parts.append("| Call | Method | Dtypes | Gradient | GPU | Compiled | Differs |")
        parts.append("|---|---|---|---|---|---|---|")
        parts += [line(entry) for entry in entries(cases)]
        parts.append("")
    parts += list(rest())
    return "\n".join(parts) + "\n"


def line(entry: Entry) -> str:
    """One line of a table."""
    cells = [call(entry), method(entry), dtypes(entry), gradient(entry), gpu(entry)]
    return "| " + " | ".join([*cells, compiled(entry), NOTES.get(entry.name, "")]) + " |"


SYNTAX = {
    "operator": "`+ - * / // % ** @ == != < <= > >= & \\| ^ ~`, unary, reflected and in place",
    "where-one": "`where(condition)`",
    "getitem": "`x[...]`",
    "setitem": "`x[...] = y`",
    "bool": "`x.bool()`, `bool(x)`",
    "len": "`len(x)`",
    "iterate": "`for row in x`",
    "int": "`x.int()`, `int(x)`",
    "neg": "`neg(x)`",
}


def call(entry: Entry) -> str:
    """The name with its arguments, and aliases."""
    for name in (entry.name, entry.cases[0].name):
        if name in SYNTAX:
            return SYNTAX[name]
    owner, prefix = ng, ""
    found: Any = ng
    for part in entry.name.split("."):
        found = getattr(found, part, None)
    if found is None or isinstance(found, ng.dtype):
        owner, prefix = ng.Tensor, "x."
        found = getattr(owner, entry.name, None)
    if found is None:
        return f"`{entry.name}`"
    text = f"`{prefix}{entry.name}{arguments(found, bool(prefix))}`"
    aliases = dict.fromkeys(a for case in entry.cases for a in case.aliases)
    return text + (f" [{', '.join(aliases)}]" if aliases else "")


def arguments(function: Any, bound: bool) -> str:
    """``(x, dim=None)``, without types."""
    if not callable(function):
        return ""
    signature = inspect.signature(function)
    given = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in signature.parameters.values()
        if p.name not in ("names", "older")  # other names of those before, and older forms
    ]
    text = str(inspect.Signature(given[1:] if bound else given))
    return text.replace("ng.", "").replace("|", "\\|")


def method(entry: Entry) -> str:
    """Whether there are a method and an in-place method."""
    base = entry.name.rpartition(".")[2]
    forms = ["yes"] if hasattr(ng.Tensor, base) else []
    if any(case.inplace for case in entry.cases) or hasattr(ng.Tensor, base + "_"):
        forms.append("`_`")
    return ", ".join(forms) or "-"


def dtypes(entry: Entry) -> str:
    """What the first tensor may be, by kind."""
    names = {d for case in entry.cases for d in case.dtypes}
    kinds = {"f": names & {*FLOATS}, "i": {n for n in names if "int" in n}, "b": names & {"bool"}}
    return " ".join(kind for kind, some in kinds.items() if some)


def gradient(entry: Entry) -> str:
    """How many times it can be differentiated."""
    if entry.name in DIFFERENTIABLE:
        return "any"
    orders = [case.orders for case in entry.cases if {*case.dtypes} & {*FLOATS}]
    most = max(orders, default=0)
    return "any" if most >= 2 else str(most) if most else "-"


def gpu(entry: Entry) -> str:
    """Whether it runs on a GPU."""
    if entry.name in NO_GPU:
        return "no"
    if all(case.name in ON_THE_HOST for case in entry.cases):
        return "host"
    if entry.name in WITHOUT_LAPACK:
        return WITHOUT_LAPACK[entry.name]
    return "no" if entry.cases[0].name.startswith(LAPACK) else "yes"


def compiled(entry: Entry) -> str:
    """Whether it can be recorded; see ``compiled.op_rows``."""
    if entry.name in PARTLY_HERE:
        return "partly"
    random = "the row itself looks at values"
    refused = [random not in REFUSED.get(c.name, random) for c in entry.cases]
    if all(refused):
        return "no"
    partly = any(refused) or any(c.name in PARTLY for c in entry.cases)
    return "partly" if partly else "yes"


def rest() -> Iterator[str]:
    """Layers, and what of the scope does not exist."""
    yield "## nn.functional and nn\n"
    yield "Beside those above: " + ", ".join(f"`{n}`" for n in without_row()) + ".\n"
    yield "Modules: " + ", ".join(f"`{n}`" for n in modules()) + ".\n"
    yield "## Not yet\n"
    absent = [f"`{name}`" for group in GROUPS for name in missing(group)]
    groups = ", ".join(f"`{group}`" for group in GROUPS if group)
    promised = f"[the names](../tests/scope.py) that are promised, of tensors, {groups}"
    if absent:
        yield f"Of {promised}, these are missing: {', '.join(absent)}."
    else:
        yield f"None of {promised}, is missing."


def modules() -> list[str]:
    """The classes of ``nn``: modules, parameters and buffers."""
    kinds = (ng.nn.Module, ng.Tensor)
    found = [(name, getattr(ng.nn, name)) for name in ng.nn.__all__]
    return sorted(n for n, item in found if isinstance(item, type) and issubclass(item, kinds))


def without_row() -> list[str]:
    """Names of nn.functional that have tests elsewhere."""
    rows = {c.function_name for cases in FAMILIES.values() for c in cases}
    there = [n for n in FUNCTIONAL if has(n, ng.nn.functional)]
    return [n for n in there if n not in rows and f"nn.functional.{n}" not in rows]
