"""Random tensors, overwriting with random numbers, and dropout. Start at ``rand``."""

from __future__ import annotations

import operator
from typing import Any

from .. import dtypes, memory_formats
from ..devices import place_of
from ..dtypes import DType
from ..errors import DTypeError, ShapeError
from ..kernels import machine
from ..kernels.cpu import random as kernels
from ..random import Generator, default_generator
from ..tensor import Tensor
from .argument_names import lower_limit, made_by_names, made_plainly
from .base import Op, as_operand, contiguous, copy_kernel, launch, new_empty
from .create import shape_of
from .elementwise import cast
from .inplace import assign
from .overwrite import overwrite
from .transfer import transfer
from .view import expand

# dtype: (kernel, words an element)
_UNIFORM = {dtypes.float32: (kernels.uniform, 1), dtypes.float64: (kernels.uniform_double, 2)}
_NORMAL = {dtypes.float32: (kernels.normal, 1), dtypes.float64: (kernels.normal_double, 2)}


def state_for(generator: Generator | None, size: int, words: int) -> Any:
    """The state for ``size`` elements of ``words`` words each."""
    if generator is None:
        generator = default_generator
    elif not isinstance(generator, Generator):
        raise TypeError(f"expected a Generator, got {type(generator).__name__}.")
    return generator.take((size * words + 3) >> 2)


def _floating(name: str, dtype: Any) -> DType:
    dtype = dtypes.get_default_dtype() if dtype is None else dtypes.to_dtype(dtype)
    if not dtype.is_floating_point:
        raise DTypeError(f"{name}: not implemented for {dtype}; use a floating dtype or randint.")
    return dtype


def _draw(table: dict, out: Tensor, generator: Any, *arguments: float) -> Tensor:
    """Fill the contiguous ``out``; halves with the numbers of float32, rounded."""
    if out._dtype in dtypes.HALVES:
        single = new_empty(out._array.shape, dtypes.float32, out._device)
        _draw(table, single, generator, *arguments)
        machine.launch(copy_kernel, out._array, single._array)
        return out
    kernel, words = table[out._dtype]
    size = out._array.size
    if size:
        state = state_for(generator, size, words)
        machine.launch(kernel, out._array.reshape(-1), state, *arguments)
    return out


def _draw_integers(out: Tensor, generator: Any, low: int, high: int) -> Tensor:
    """Whole numbers from ``low`` up to ``high``, which is left out."""
    if out._array.size:
        span = high - low
        if span >= 2**63:  # the kernel reads it as unsigned
            span -= 2**64
        if not -(2**63) <= low < 2**63:
            raise ShapeError(f"randint: low {low} is out of range for int64.")
        state = state_for(generator, out._array.size, 2)
        machine.launch(kernels.integers, out._array.reshape(-1), state, low, span)
    return out


def _finish(out: Tensor, requires_grad: bool) -> Tensor:
    return out.requires_grad_() if requires_grad else out


# -- new tensors -----------------------------------------------------------------------------------


def rand(
    *size: Any,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
    **names: Any,
) -> Tensor:
    """Uniform numbers in [0, 1); sizes one by one or as one tuple."""
    if names:
        given = {"dtype": dtype, "device": device, "requires_grad": requires_grad}
        return made_by_names(rand, names, size, generator=generator, **given)
    out = new_empty(shape_of("rand", size), _floating("rand", dtype), place_of(device))
    return _finish(_draw(_UNIFORM, out, generator, 0.0, 1.0), requires_grad)


def randn(
    *size: Any,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
    **names: Any,
) -> Tensor:
    """Normal numbers of mean 0 and variance 1; sizes one by one or as one tuple."""
    if names:
        given = {"dtype": dtype, "device": device, "requires_grad": requires_grad}
        return made_by_names(randn, names, size, generator=generator, **given)
    out = new_empty(shape_of("randn", size), _floating("randn", dtype), place_of(device))
    return _finish(_draw(_NORMAL, out, generator, 0.0, 1.0), requires_grad)


def _span(name: str, low: Any, high: Any) -> tuple[int, int]:
    low, high = operator.index(low), operator.index(high)
    if low >= high:
        raise ShapeError(f"{name}: expects 'from' to be less than 'to', but got {low} >= {high}.")
    return low, high


def randint(
    low: int,
    high: Any = None,
    size: Any = None,
    *,
    dtype: Any = dtypes.int64,
    device: Any = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
    **names: Any,
) -> Tensor:
    """Whole numbers from ``low`` (0 if left out) to ``high`` - 1: ``randint(10, (2, 3))``."""
    if names:
        return made_plainly(
            randint, names, (low, high, size), dtype, device, requires_grad, generator
        )
    if size is None:
        low, high, size = 0, low, high
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"randint: size must be a tuple of ints, got {size!r}.")
    if high is None:
        low, high = 0, low
    low, high = _span("randint", low, high)
    dtype = dtypes.int64 if dtype is None else dtypes.to_dtype(dtype)
    out = new_empty(shape_of("randint", (tuple(size),)), dtype, place_of(device))
    return _finish(_draw_integers(out, generator, low, high), requires_grad)


def randperm(
    n: int,
    *,
    dtype: Any = dtypes.int64,
    device: Any = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
    **names: Any,
) -> Tensor:
    """The numbers 0 to n - 1 in random order."""
    if names:
        return made_plainly(randperm, names, (n,), dtype, device, requires_grad, generator)
    place = place_of(device)
    (n,) = shape_of("randperm", (n,))
    out = new_empty((n,), dtypes.int64)
    if n:
        launch(kernels.permutation, out, state_for(generator, n, 2))
    return _finish(transfer(cast(out, dtypes.to_dtype(dtype)), place), requires_grad)


def _like(name: str, table: dict) -> Any:
    def function(
        input: Tensor,
        *,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        generator: Generator | None = None,
        memory_format: Any = None,
        **names: Any,
    ) -> Tensor:
        if names:
            return made_plainly(function, names, (input,), dtype, device, requires_grad, generator)
        memory_formats.check(name, memory_format)
        dtype = as_operand(name, input)._dtype if dtype is None else dtype
        out = new_empty(input._array.shape, _floating(name, dtype), place_of(device, input))
        return _finish(_draw(table, out, generator, 0.0, 1.0), requires_grad)

    function.__name__ = name
    function.__doc__ = f"``{name[:-5]}`` in the shape and dtype of ``input``."
    return function


rand_like = _like("rand_like", _UNIFORM)
randn_like = _like("randn_like", _NORMAL)


def randint_like(
    input: Tensor,
    low: int,
    high: int | None = None,
    *,
    dtype: Any = None,
    memory_format: Any = None,
    **options: Any,
) -> Tensor:
    """``randint`` in the shape and dtype of ``input``."""
    memory_formats.check("randint_like", memory_format)
    dtype = as_operand("randint_like", input)._dtype if dtype is None else dtype
    low, high = (0, low) if high is None else (low, high)
    options.setdefault("device", input._device)
    return randint(low, high, tuple(input._array.shape), dtype=dtype, **options)


def normal(
    mean: Any,
    std: Any = 1.0,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: Any = None,
    device: Any = None,
) -> Tensor:
    """Normal numbers; mean and std are tensors that broadcast, or numbers with a ``size``."""
    if not isinstance(std, Tensor) and std < 0:
        raise ShapeError(f"normal: expects std >= 0.0, but found std {std}.")
    if not isinstance(mean, Tensor) and not isinstance(std, Tensor):
        shape = shape_of("normal", (() if size is None else size,))
        out = new_empty(shape, _floating("normal", dtype), place_of(device))
        return _draw(_NORMAL, out, generator, float(mean), float(std))
    like = (mean + std).detach()
    return randn_like(like, generator=generator) * std + mean


def bernoulli(input: Tensor, p: float | None = None, *, generator: Any = None) -> Tensor:
    """1 with the probability that each element of ``input`` (or ``p``) is, else 0."""
    out = new_empty(as_operand("bernoulli", input)._array.shape, input._dtype, input._device)
    if p is not None:
        return _bernoulli(out, p, generator)
    if not input._dtype.is_floating_point:
        raise DTypeError(f"bernoulli: expected floating probabilities, got {input._dtype}.")
    return _bernoulli(out, input, generator)


def _bernoulli(out: Tensor, p: Any, generator: Any) -> Tensor:
    size = out._array.size
    if not isinstance(p, Tensor):
        if not 0 <= p <= 1:
            raise ShapeError(f"bernoulli: expects p to be in [0, 1], but got p={p}.")
        if size:
            state = state_for(generator, size, 1)
            machine.launch(kernels.bernoulli, out._array.reshape(-1), state, float(p))
        return out
    if size:
        p = contiguous(expand(p.detach(), out._array.shape))
        bad = new_empty((1,), dtypes.int64, out._device)
        state = state_for(generator, size, 2)
        flat = out._array.reshape(-1)
        machine.launch(kernels.bernoulli_each, flat, bad._array, p._array.reshape(-1), state)
        machine.check(bad._array, _refuse_probability)
    return out


def _refuse_probability(number: int) -> None:
    raise ShapeError("bernoulli: Expected p_in >= 0 && p_in <= 1 to be true.")


def _refuse_weights(number: int) -> None:
    raise ShapeError(f"multinomial: {_COMPLAINTS[number]}")


_COMPLAINTS = (
    "probability tensor contains either `inf`, `nan` or element < 0.",
    "invalid multinomial distribution (sum of probabilities <= 0).",
    "invalid multinomial distribution (with replacement=False, not enough non-negative category "
    "to sample); use replacement=True or fewer samples.",
)


def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Indices drawn by the weights in each row of ``input``, (m,) or (n, m).

    Without replacement an index occurs once in a row, and the earlier ones are the likelier.
    """
    x = as_operand("multinomial", input).detach()
    if not x._dtype.is_floating_point:
        raise DTypeError(f"multinomial: only supports floating-point dtypes, got {x._dtype}.")
    rank = x._array.ndim
    if not 1 <= rank <= 2:
        raise ShapeError(f"multinomial: prob_dist must be 1 or 2 dim, got {rank}.")
    m = x._array.shape[-1]
    if num_samples <= 0:
        raise ShapeError("multinomial: cannot sample n_sample <= 0 samples.")
    if not replacement and num_samples > m:
        raise ShapeError(
            f"multinomial: cannot sample n_sample > prob_dist.size(-1) samples without "
            f"replacement, got {num_samples} > {m}."
        )
    n = x._array.shape[0] if rank == 2 else 1
    out = new_empty((n, num_samples), dtypes.int64, x._device)
    bad = new_empty((1,), dtypes.int64, x._device)
    kernel = kernels.multinomial_again if replacement else kernels.multinomial_once
    state = state_for(generator, n * (num_samples if replacement else m), 2)
    launch(kernel, out, bad, contiguous(x)._array.reshape(n, m), state)
    machine.check(bad._array, _refuse_weights)
    return out if rank == 2 else out.reshape(num_samples)


# -- dropout ---------------------------------------------------------------------------------------


class Dropout(Op):
    """Elements zeroed at random; the generator's state stands for the mask."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, state: Any, p: float) -> Tensor:
        ctx.state, ctx.p = state, p
        x = contiguous(x)
        out = new_empty(x._array.shape, x._dtype, x._device)
        scale = 1.0 / (1.0 - p) if p < 1 else 0.0
        flat = x._array.reshape(-1)
        machine.launch(kernels.dropout, out._array.reshape(-1), flat, state, p, scale)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return Dropout.apply(g, ctx.state, ctx.p)


def dropout(
    input: Tensor,
    p: float = 0.5,
    training: bool = True,
    inplace: bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Zeros with probability ``p``, else ``input / (1 - p)``; ``input`` itself when not training.

    Gradient: the same elements of g, scaled alike. Raises ValueError unless 0 <= p <= 1.

    >>> dropout(tensor([1.0, 2.0]), p=0.0).tolist()
    [1.0, 2.0]
    """
    if not 0 <= p <= 1:
        raise ShapeError(f"dropout: dropout probability has to be between 0 and 1, but got {p}.")
    if not as_operand("dropout", input)._dtype.is_floating_point and training and p:
        raise DTypeError(f"dropout: result type float can't be cast to {input._dtype}.")
    if not training or p == 0 or not input._array.size:
        return input
    out = Dropout.apply(input, state_for(generator, input._array.size, 1), float(p))
    return assign(input, out, "dropout_") if inplace else out


# -- overwriting -----------------------------------------------------------------------------------


def _check_floating(name: str, x: Tensor) -> None:
    if not x._dtype.is_floating_point:
        raise DTypeError(f"{name}: not implemented for {x._dtype}; convert with .float().")


def uniform_(
    x: Tensor, a: float | None = None, to: float = 1.0, *, generator: Any = None, **names: Any
) -> Tensor:
    """Uniform numbers in [a, to), in place; ``a`` is 0 by default, and ``from`` by keyword."""
    _check_floating("uniform_", x)
    a = lower_limit("uniform_", names, a) if names else a
    a, b = 0.0 if a is None else a, to
    if a > b:
        raise ShapeError(f"uniform_: expects to return a [from, to) range, but found {a} > {b}.")
    return overwrite(x, "uniform_", lambda out: _draw(_UNIFORM, out, generator, float(a), float(b)))


def normal_(x: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Any = None) -> Tensor:
    """Normal numbers, in place."""
    _check_floating("normal_", x)
    if std < 0:
        raise ShapeError(f"normal_: expects std >= 0.0, but found std {std}.")
    return overwrite(
        x, "normal_", lambda out: _draw(_NORMAL, out, generator, float(mean), float(std))
    )


def exponential_(x: Tensor, lambd: float = 1.0, *, generator: Any = None) -> Tensor:
    """Exponential numbers of rate ``lambd``, in place."""
    _check_floating("exponential_", x)
    if lambd <= 0:
        raise ShapeError(f"exponential_: expects lambda > 0.0, but found lambda={lambd}.")
    table = dict.fromkeys(dtypes.FLOATING, (kernels.exponential, 2))
    return overwrite(x, "exponential_", lambda out: _draw(table, out, generator, float(lambd)))


def bernoulli_(x: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """1 with probability ``p``, a number or a tensor, else 0; in place."""
    return overwrite(x, "bernoulli_", lambda out: _bernoulli(out, p, generator))


def random_(
    x: Tensor, low: int | None = None, to: int | None = None, *, generator: Any = None, **names: Any
) -> Tensor:
    """Whole numbers from ``low`` to ``to`` - 1, or all that the dtype holds exactly; in place.

    ``low`` is 0 by default, and ``from`` by keyword; ``random_(n)`` stops before n.
    """
    low, high = lower_limit("random_", names, low) if names else low, to
    if names and high is None:
        raise TypeError("random_(): 'from' needs 'to' beside it.")
    if low is None and high is not None:
        low = 0
    if low is not None and high is None:
        low, high = 0, low
    if low is None:
        low, high = 0, 2 ** {dtypes.float32: 24, dtypes.float64: 53}.get(x._dtype, 0)
        if x._dtype is dtypes.bool_:
            high = 2
        elif not x._dtype.is_floating_point:
            high = dtypes.iinfo(x._dtype).max + 1
    low, high = _span("random_", low, high)
    return overwrite(x, "random_", lambda out: _draw_integers(out, generator, low, high))


_PUBLIC = """
    bernoulli dropout multinomial normal rand rand_like randint randint_like randn randn_like
    randperm
""".split()
__all__ = [*_PUBLIC]

METHODS: dict[str, Any] = {
    "bernoulli": bernoulli,
    "bernoulli_": bernoulli_,
    "exponential_": exponential_,
    "multinomial": multinomial,
    "normal_": normal_,
    "random_": random_,
    "uniform_": uniform_,
}
