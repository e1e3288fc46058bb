"""Every row of the op table on the device, against the CPU: values and first gradients."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from cases import ALL
from op_table import FLOATS, Case, Fixed, Sample, convert, dtype_name, leaves

import numbagrad as ng
from benchmarks.cuda_gaps import KNOWN_GAPS, LAPACK, ON_THE_HOST
from numbagrad.errors import NoTwinError
from numbagrad.kernels.cuda.runtime import device

pytestmark = pytest.mark.cuda
SIMULATED = device.simulating()


def chosen() -> list[tuple[Case, str]]:
    """Rows and dtypes; in the simulator one floating dtype of each row, and int64.

    Sizes that need several blocks on the CPU are minutes there, where four rows do.
    """
    pairs = []
    skipped = {*ON_THE_HOST, *(["scaled_dot_product_attention-long"] if SIMULATED else [])}
    for case in [c for c in ALL if c.name not in skipped]:
        dtypes = [d for d in case.dtypes if d != "float64" or len(case.dtypes) == 1]
        some = [*dtypes[:1], *[d for d in dtypes[1:] if d == "int64"]]
        pairs += [(case, d) for d in (some if SIMULATED else case.dtypes)]
    return pairs


def samples(case: Case, dtype: str) -> list[Sample]:
    """The calls to try; in the simulator a few."""
    calls = case.calls(dtype)
    if not SIMULATED:
        return calls
    kinds = list(dict.fromkeys(call.kind for call in calls))
    kinds = kinds[:1] if dtype == "int64" else kinds
    return [next(c for c in calls if c.kind == kind) for kind in kinds]


def tensors(value: Any, place: str, leaf: bool) -> Any:
    """``value`` with its arrays as tensors on ``place``, floats asking for gradients if leaf."""
    if isinstance(value, ng.Tensor):
        moved = value.to(place).detach()
        return moved.requires_grad_(leaf and moved.dtype.is_floating_point)
    if isinstance(value, (list, tuple)):
        return type(value)(tensors(v, place, leaf) for v in value)
    if isinstance(value, dict):
        return {k: tensors(v, place, leaf) for k, v in value.items()}
    return value


def run(case: Case, call: Sample, place: str, leaf: bool) -> tuple[list[Any], list[Any]]:
    """Results and float inputs of a call on ``place``."""

    def given(value: Any) -> Any:
        return tensors(convert(value), place, leaf and not isinstance(value, Fixed))

    args = [given(value) for value in call.args]
    kwargs = {name: given(value) for name, value in call.kwargs.items()}
    ng.manual_seed(7)
    result = case.target()(*args, **kwargs)
    inputs = list(leaves([*leaves(args), *leaves(list(kwargs.values()))]))
    return list(leaves(result)), [t for t in inputs if isinstance(t, ng.Tensor)]


def on_host(value: Any) -> np.ndarray:
    return value.detach().cpu().numpy() if isinstance(value, ng.Tensor) else np.asarray(value)


def assert_close(
    got: Any, expected: Any, case: Case, dtype: str, factor: float, words: str
) -> None:
    got, expected = on_host(got), on_host(expected)
    assert got.shape == expected.shape and got.dtype == expected.dtype, words
    rtol = factor * max(case.rtol64 if dtype == "float64" else case.rtol32, 2e-6)
    rtol = max(rtol, 1e-12) if dtype == "float64" else rtol
    np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol, err_msg=words)


@pytest.mark.parametrize("case,dtype", chosen(), ids=[f"{c.name}-{d}" for c, d in chosen()])
def test_op(case: Case, dtype: str) -> None:
    for call in samples(case, dtype):
        try:
            compare(case, dtype, call)
        except NoTwinError as error:
            kernel = str(error).partition(":")[0]
            known = {name.partition(".")[2] for name in KNOWN_GAPS}
            assert kernel in known or case.name.startswith(LAPACK), error
            pytest.skip(f"known gap: {kernel}")


def compare(case: Case, dtype: str, call: Sample) -> None:
    """One call on the device against the CPU."""
    words = f"{case.name} {dtype} {call.kind}"
    leaf = case.orders >= 1 and dtype in FLOATS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, cpu_inputs = run(case, call, "cpu", leaf)
        got, inputs = run(case, call, "cuda", leaf)
        # the second is watched, the third launched as that was
        more = [] if SIMULATED else [run(case, call, "cuda", leaf)[0] for _ in range(2)]
    assert len(got) == len(expected), words
    for out, truth in zip(got, expected, strict=True):
        if isinstance(out, ng.Tensor):
            assert out.is_cuda or not any(t.is_cuda for t in inputs), f"{words}: on {out.device}"
        assert_close(out, truth, case, dtype, 4, words)
    for again in more:
        for out, same in zip(got, again, strict=True):
            np.testing.assert_array_equal(on_host(out), on_host(same), f"{words}: again")
    if not leaf:
        return
    pairs = [
        (g, e)
        for g, e in zip(got, expected, strict=True)
        if isinstance(g, ng.Tensor) and dtype_name(g) in FLOATS and g.requires_grad
    ]
    if not pairs:
        return
    grads = []
    for outs, leaves_ in (([p[0] for p in pairs], inputs), ([p[1] for p in pairs], cpu_inputs)):
        wanted = [t for t in leaves_ if t.requires_grad]
        rng = np.random.default_rng(5)
        weights = [
            ng.tensor(rng.uniform(0.5, 1.5, tuple(o.shape))).to(o.dtype).to(o.device) for o in outs
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            grads.append(ng.autograd.grad(outs, wanted, weights, allow_unused=True))
    for out, truth in zip(*grads, strict=True):
        assert (out is None) == (truth is None), f"{words}: gradient"
        if out is not None:
            assert out.is_cuda, f"{words}: gradient on {out.device}"
            assert_close(out, truth, case, dtype, 40, f"{words}: gradient")
