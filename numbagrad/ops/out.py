"""The keyword ``out``: results written into tensors that the user has, as PyTorch does.

A function that takes it is a second object beside the method, made when it is first asked for: an
elementwise op's is the same code with ``out`` named, any other's passes its arguments on. Start
reading at ``into``, which every call with ``out`` reaches.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

from .. import devices
from ..autograd.modes import no_grad
from ..errors import DeviceError, DTypeError, GradError, ShapeError, class_name
from ..kernels import machine
from ..later import OUR_FILES
from ..tape import grad_mode
from ..tensor import Tensor
from . import formulas
from .argument_names import OLDER, UNUSUAL, USUAL, renamed
from .base import base_of, copy_kernel
from .inplace import check_distinct
from .operand import check_operands
from .out_directly import at_once, direct, overlap, result_of, tensors_in
from .remembered import plainly
from .resizing import check_resizable, resized
from .warned import warn_user

__all__: list[str] = []

FUNCTIONS = """
    abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr all amax amin aminmax angle
    any arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort asin asinh
    atan atan2 atanh baddbmm bernoulli bitwise_and bitwise_left_shift bitwise_not bitwise_or
    bitwise_right_shift bitwise_xor bmm bucketize cat ceil chain_matmul cholesky cholesky_inverse
    cholesky_solve clamp clamp_max clamp_min clip column_stack concat concatenate conj_physical
    copysign cos cosh cross cummax cummin cumprod cumsum deg2rad detach_copy diag diff digamma div
    divide dot dstack empty eq erf erfc erfinv exp exp2 expm1 eye fix float_power floor floor_divide
    fmax fmin fmod frac frexp frobenius_norm full gather gcd ge geqrf ger greater greater_equal gt
    hardshrink heaviside histc histogram hstack hypot i0 igamma igammac index_add index_copy
    index_reduce index_select inner inverse isin isneginf isposinf kron kthvalue lcm ldexp le lerp
    less less_equal lgamma linspace log log10 log1p log2 log_softmax logaddexp logaddexp2
    logcumsumexp logical_and logical_not logical_or logical_xor logit logspace logsumexp lt lu_solve
    lu_unpack masked_select matmul matrix_power max maximum mean median min minimum mm mode msort
    mul multinomial multiply mv mvlgamma nan_to_num nanmean nanmedian nanquantile nansum narrow_copy
    ne neg negative nextafter nonzero nonzero_static norm normal not_equal nuclear_norm ones orgqr
    ormqr outer polygamma pow prod qr quantile rad2deg rand randint randn randperm range reciprocal
    remainder renorm round row_stack rsqrt scatter scatter_add scatter_reduce searchsorted sgn
    sigmoid sign signbit sin sinc sinh slice_scatter slogdet softmax sort sqrt square stack std sub
    subtract sum svd take take_along_dim tan tanh threshold topk triangular_solve tril triu
    true_divide trunc var vdot vstack where xlogy zeros
""".split()
"""Functions of the package itself that take ``out``: those of PyTorch's that do."""

LINALG = """
    cholesky cholesky_ex cond cross det eigh eigvalsh householder_product inv inv_ex lu lu_factor
    lu_factor_ex lu_solve matmul matrix_norm matrix_power matrix_rank multi_dot norm pinv qr slogdet
    solve solve_ex solve_triangular svd svdvals tensorinv tensorsolve vecdot vector_norm
""".split()

SPECIAL = """
    bessel_j0 bessel_j1 bessel_y0 bessel_y1 digamma entr erf erfc erfcx erfinv exp2 expit expm1
    gammainc gammaincc gammaln i0 i0e i1 i1e log1p log_ndtr logit logsumexp
    multigammaln ndtr ndtri polygamma psi round sinc xlog1py xlogy zeta
""".split()

MAKERS = frozenset(
    """arange empty eye full linspace logspace normal ones rand randint randn randperm range
    zeros""".split()
)
"""Functions that take dtype and device from ``out``, where they are not given."""

GENERATED = "<functions that take out>"
"""Where tracebacks say that the generated text stands."""

OUR_FILES[GENERATED] = True


# -- writing ---------------------------------------------------------------------------------------


def into(
    name: str, function: Callable, out: Any, args: tuple, options: dict, op: Any = None
) -> Any:
    """``function(*args, **options)``, written into ``out``; returns ``out``.

    out: a tensor, or a tuple of them where the function gives several. Each is resized where its
    shape differs, with a warning unless it was empty, and takes what may be cast to its dtype.
    op: the elementwise op that ``function`` is. On any error ``out`` is as it was.
    """
    if hasattr(op, "in_order"):
        args = op.in_order(args)
    if type(out) is Tensor and not options and at_once(name, op, out, args):
        out._bump_version()
        return out
    several = isinstance(out, (tuple, list))
    outs = tuple(out) if several else (out,)
    for position, each in enumerate(outs):
        if not isinstance(each, Tensor):
            place = f", element {position}," if several else ""
            raise TypeError(
                f"{name}(): argument 'out'{place} must be Tensor, not {class_name(each)}."
            )
    inputs = tensors_in((*args, *options.values()))
    _check_memory(name, outs, inputs)
    if name in MAKERS:
        options = _made_alike(name, args, options, outs[0])
    if not several and not options and direct(name, op, out, args):
        out._bump_version()
        return out
    with no_grad():
        value = (
            function(*args, **options)
            if several
            else result_of(name, outs[0], function, args, options)
        )
    values = value if isinstance(value, (tuple, list)) else (value,)
    if isinstance(value, Tensor) is several or len(values) != len(outs):
        raise TypeError(
            f"{name}(): argument 'out' must be {_kind(value)}, as the result is, not {_kind(out)}."
        )
    for target, found in zip(outs, values, strict=True):
        _check_takes(name, target, found, inputs)
    for target, found in zip(outs, values, strict=True):
        _write(name, target, found)
    if options.get("requires_grad"):
        outs[0].requires_grad_()
    if not several:
        return out
    return type(value)(*outs) if hasattr(value, "_fields") else outs


def _kind(value: Any) -> str:
    return "Tensor" if isinstance(value, Tensor) else f"tuple of {len(value)} Tensors"


def _check_memory(name: str, outs: tuple[Tensor, ...], inputs: list[Tensor]) -> None:
    """Raise unless all ``outs`` may be written while ``inputs`` are read."""
    if grad_mode.enabled:
        for tensor in (*outs, *inputs):
            if tensor._edge is not None or base_of(tensor)._edge is not None:
                raise GradError(
                    f"{name}(): functions with out=... arguments don't support automatic "
                    f"differentiation, but one of the arguments requires grad. Use ng.no_grad(), "
                    f"or the function without out."
                )
    for out in outs:
        check_distinct(out, name)
        for tensor in inputs:
            if tensor._device is not out._device and tensor._array.ndim:
                raise devices.mixed(name, tensor._device, out._device)
            if overlap(out, tensor) == "part":
                raise GradError(
                    f"{name}: unsupported operation: some elements of the input tensor and the "
                    f"written-to tensor refer to a single memory location. Please clone() the "
                    f"tensor before performing the operation."
                )


def _made_alike(name: str, args: tuple, options: dict, out: Tensor) -> dict:
    """``options`` with the dtype and device of ``out``."""
    asked = options.get("dtype")
    if asked is not None and asked is not out._dtype:
        raise DTypeError(f"{name}: dtype {asked} does not match dtype of out parameter {out.dtype}")
    asked = options.get("device")
    if asked is not None and devices.to_device(asked) is not out._device:
        raise DeviceError(
            f"{name}: device {asked} does not match device of out parameter ({out._device})"
        )
    if name == "normal" and tensors_in(args):
        return options
    return {**options, "dtype": out._dtype, "device": out._device}


def _check_takes(name: str, out: Tensor, value: Tensor, inputs: list[Tensor]) -> None:
    """Raise if ``value`` cannot be written into ``out``."""
    if value._dtype.category > out._dtype.category:
        raise DTypeError(
            f"{name}: result type {value._dtype} can't be cast to the desired output type "
            f"{out._dtype}. Give an out of the result's dtype."
        )
    if value._device is not out._device:
        raise devices.mixed(name, value._device, out._device)
    shape = value._array.shape
    if shape == out._array.shape:
        return
    if any([out is each for each in inputs]):
        raise ShapeError(
            f"{name}: output with shape {list(out.shape)} doesn't match the broadcast shape "
            f"{list(shape)}. An out that is an input cannot grow."
        )
    check_resizable(name, out, shape)


def _write(name: str, out: Tensor, value: Tensor) -> None:
    shape = value._array.shape
    if out._array.shape != shape:
        if out._array.size:
            warn_user(
                f"{name}: An output with one or more elements was resized since it had shape "
                f"{list(out.shape)}, which does not match the required output shape "
                f"{list(shape)}. Resize it yourself to zero elements, out.resize_(0), if that is "
                f"meant."
            )
        resized(name, out, shape)
    if value._array is not out._array:
        machine.launch(copy_kernel, out._array, value._array)
    out._bump_version()


NOTHING_BUT = {
    "add": formulas.Add.op.binary,
    "div": formulas.Div.op.binary,
    "round": formulas.Round.op.unary,
}
"""What functions come to where no option is given: a call of theirs less."""

# -- the functions ---------------------------------------------------------------------------------


def checked_surplus(name: str, expected: int, surplus: Any) -> None:
    """Raise if an argument came by position where only ``out=`` may follow."""
    if surplus is not None:
        verb = "was" if expected == 0 else "were"
        raise TypeError(
            f"{name}() takes {expected} positional argument{'s' * (expected != 1)} but "
            f"{expected + 1} {verb} given"
        )


def taking_out(
    module: dict[str, Any], names: Iterable[str], otherwise: Callable[[str], Any] | None = None
) -> Callable[[str], Any]:
    """The ``__getattr__`` of a module whose functions ``names`` take ``out``.

    They leave ``module``, its dict, and come back one by one, as they are asked for: making them
    all would cost each import 10 ms. otherwise: finds what else the module has.
    """
    plain = {name: module.pop(name) for name in names if name in module}
    wanted = frozenset(names)
    package, _, part = module["__name__"].partition(".")

    def find(name: str) -> Any:
        function = plain.get(name)
        if function is None:
            if otherwise is None:
                raise AttributeError(f"module {module['__name__']!r} has no attribute {name!r}")
            function = otherwise(name)
            if name not in wanted:
                return function
        module[name] = found = _with_out(function)
        if found.__module__ != package:  # where pickle finds it
            found.__module__ = package
            found.__qualname__ = f"{part}.{name}" if part else name
        return found

    return find


@functools.cache
def _with_out(function: Any) -> Any:
    """``function`` with the keyword ``out``."""
    code = function.__code__
    named = code.co_flags & inspect.CO_VARKEYWORDS and _op_of(function) is None
    named = named and plainly(function) is function  # it would pass out on
    if named or "_out" in code.co_varnames[: code.co_argcount]:
        made = FunctionType(
            renamed(code, {"_out": "out"}),
            function.__globals__,
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        made.__kwdefaults__ = function.__kwdefaults__
    else:
        text, names = _text(function)
        exec(compile(text, GENERATED, "exec"), names)
        made = names[function.__name__]
    functools.update_wrapper(made, function)
    made.__dict__["__signature__"] = _documented(function)
    return made


_KINDS = inspect.Parameter


def _documented(function: Any) -> inspect.Signature:
    """What help shows."""
    parameters = list(_signature(function).parameters.values())
    out = _KINDS("out", _KINDS.KEYWORD_ONLY, default=None, annotation="Any")
    parameters = [p for p in parameters if p.name != OLDER]
    last = len(parameters) - (bool(parameters) and parameters[-1].kind is _KINDS.VAR_KEYWORD)
    return _signature(function).replace(parameters=[*parameters[:last], out, *parameters[last:]])


def _op_of(function: Any) -> Any:
    """The op that ``function`` is nothing but a call of, or None."""
    code = function.__code__
    alone = code.co_flags & inspect.CO_VARARGS or "_out" in code.co_varnames
    return getattr(function, "op", None) if alone else None


def _signature(function: Any) -> inspect.Signature:
    """That of ``function``; of an elementwise op, the operands of its formula."""
    op = _op_of(function)
    if op is None or "_out" in function.__code__.co_varnames:
        return inspect.signature(function)
    names = UNUSUAL.get(op.name, USUAL)
    first = len(op.inputs) - len(op.defaults)
    return inspect.Signature(
        [
            _KINDS(
                names.get(name, name),
                _KINDS.POSITIONAL_OR_KEYWORD,
                default=op.defaults[i - first] if i >= first else _KINDS.empty,
            )
            for i, name in enumerate(op.inputs)
        ]
    )


def _text(function: Any) -> tuple[str, dict[str, Any]]:
    """A function that calls ``function``, or ``into`` if it gets ``out``: text and globals.

    What may be given by keyword only follows ``surplus``, for parameters that Python itself keeps
    to keywords cost a call 30 ns and more.
    """
    name, op = function.__name__, _op_of(function)
    general = None if op is None or len(op.inputs) > 2 else op.general  # more are remembered
    parameters = [p for p in _signature(function).parameters.values() if p.name != OLDER]
    given = [p.name for p in parameters if p.kind is _KINDS.POSITIONAL_OR_KEYWORD]
    star = [f"*{p.name}" for p in parameters if p.kind is _KINDS.VAR_POSITIONAL]
    others = [p.name for p in parameters if p.kind is _KINDS.VAR_KEYWORD]
    keywords = [p for p in parameters if p.kind is _KINDS.KEYWORD_ONLY]
    options = [p.name for p in keywords if p.default is not _KINDS.empty]
    required = [p.name for p in keywords if p.default is _KINDS.empty]
    defaults = {p.name: p.default for p in parameters if p.default is not _KINDS.empty}
    names = {
        "function": function,
        "usually": general or NOTHING_BUT.get(name, function),
        "further": _further,
        "check": check_operands,
        "defaults": defaults,
        **{f"{p}_": value for p, value in defaults.items()},
    }
    surplus, plain = ("None", "out is None") if star else ("surplus", "out is surplus is None")
    header = [f"{p}={p}_" if p in defaults else p for p in given]
    header += star or ["surplus=None"]
    header += [f"{p}={p}_" for p in options] + ["out=None"]
    header += ["*", *required] if required else []
    header += [f"**{p}" for p in others]
    values = ", ".join([*given, *star])
    lines = [f"def {name}({', '.join(header)}):", " try:"]
    if not required:
        unset = [*[f"{p} is {p}_" for p in options], *[f"not {p}" for p in others]]
        usual = " and ".join([plain, *unset])
        call = f"usually({values})" if general is None else f"usually(({values}))"
        lines += [f"  if {usual}:", f"   return {call}"]
    if keywords or others:
        by_name = [*[f"{p.name}={p.name}" for p in keywords], *[f"**{p}" for p in others]]
        call = ", ".join([v for v in (values, *by_name) if v])
        lines += [f"  if {plain}:", f"   return function({call})"]
    everything = [f"{p.name!r}: {p.name}" for p in keywords] + [f"**{p}" for p in others]
    args = f"({values}{',' if values else ''})"
    lines += [f"  options = {{{', '.join(everything)}}}"]
    lines += [f"  return further(function, {surplus}, out, {args}, options, defaults)"]
    lines += [f" except AttributeError as error: check({name!r}, error, {args}); raise"]
    return "\n".join(lines), names


def _further(
    function: Any, surplus: Any, out: Any, args: tuple, options: dict, defaults: dict
) -> Any:
    """A call with ``out``, or with too many arguments."""
    name = function.__name__
    if surplus is not None and out is None and OLDER in function.__code__.co_varnames:
        return function(*args, surplus)
    checked_surplus(name, len(args), surplus)
    options = {k: v for k, v in options.items() if k not in defaults or v is not defaults[k]}
    return into(name, function, out, args, options, _op_of(function))
