"""Operands on two devices: every row of the op table refuses them, with both devices named."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
from cases import ALL
from op_table import Case, Sample, convert, leaves

import numbagrad as ng
from benchmarks.cuda_gaps import ON_THE_HOST
from numbagrad.errors import DeviceError, NoTwinError

pytestmark = pytest.mark.cuda

MAY_MIX = {
    "broadcast_tensors": "views, each on its own device",
    "copy_": "copies between devices",
    "ctc_loss": "targets and lengths follow the input",
    "expand_as": "reads the shape of the other",
    "setitem-tensor": "a slice takes a copy",
    "reshape_as": "reads the shape of the other",
    "type_as": "moves to the device of the other",
    "view_as": "reads the shape of the other",
}
"""Rows that take operands of two devices, as in PyTorch, and why."""

BRACKETS = "getitem", "setitem", "index_put"
"""Rows whose indices may be on the CPU, as in PyTorch."""


def placed(value: Any, alone: int, seen: list[ng.Tensor]) -> Any:
    """``value`` with its tensors on the device, but the one numbered ``alone``; all are in seen."""
    if isinstance(value, ng.Tensor):
        seen.append(value)
        return value if len(seen) - 1 == alone else value.cuda()
    if isinstance(value, (list, tuple)):
        return type(value)(placed(v, alone, seen) for v in value)
    if isinstance(value, dict):
        return {k: placed(v, alone, seen) for k, v in value.items()}
    return value


def calls(case: Case) -> list[Sample]:
    """A call for each set of arguments that are tensors, none of them empty."""
    found: dict[Any, Sample] = {}
    for call in [call for dtype in case.dtypes[:1] for call in case.calls(dtype)]:
        args, kwargs = convert(call.args), convert(call.kwargs)
        tensors = [*leaves([*leaves(args), *leaves(list(kwargs.values()))])]
        tensors = [t for t in tensors if isinstance(t, ng.Tensor)]
        if len(tensors) > 1 and all(t.ndim and t.numel() for t in tensors):
            form = tuple(type(a) for a in args), tuple(kwargs), len(tensors)
            found.setdefault(form, call)
    return list(found.values())


CHOSEN = [(case, call) for case in ALL if case.name not in ON_THE_HOST for call in calls(case)]


def arguments(call: Sample, alone: int) -> tuple[Any, Any, list[ng.Tensor]]:
    """Fresh positional and named arguments, and their tensors as they were made."""
    seen: list[ng.Tensor] = []
    args, kwargs = placed((convert(call.args), convert(call.kwargs)), alone, seen)
    return args, kwargs, seen


def may_be_apart(case: Case, alone: int, tensor: ng.Tensor) -> bool:
    index = alone > 0 and tensor.dtype in (ng.int64, ng.bool)
    return case.name in MAY_MIX or (case.name.startswith(BRACKETS) and index)


@pytest.mark.parametrize("case,call", CHOSEN, ids=[f"{c.name}-{len(s.kwargs)}" for c, s in CHOSEN])
def test_operands_on_two_devices(case: Case, call: Sample) -> None:
    _, _, tensors = arguments(call, -1)
    forms = [case.target()]
    if case.inplace:
        forms.append(lambda x, *args, **kwargs: getattr(x, case.inplace)(*args, **kwargs))
    for (alone, tensor), form in itertools.product(enumerate(tensors), forms):
        args, kwargs, _ = arguments(call, alone)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if may_be_apart(case, alone, tensor):
                here = [t.cpu() for t in leaves(form(*args, **kwargs))]
                there = leaves(form(*convert(call.args), **convert(call.kwargs)))
                assert all([ng.allclose(a, b) for a, b in zip(here, there, strict=True)])
                continue
            with pytest.raises(DeviceError) as raised:
                form(*args, **kwargs)
        words = str(raised.value)
        assert not isinstance(raised.value, NoTwinError), words
        assert "cuda:0" in words and "cpu" in words and ".to(device)" in words, words


def test_a_scalar_of_the_cpu_beside_a_gpu():
    x = ng.tensor([1.0, 2.0], device="cuda", requires_grad=True)
    scale = ng.tensor(3.0, requires_grad=True)
    out = ng.where(x > ng.tensor(1.5), x * scale, scale)
    assert out.is_cuda and out.tolist() == [3.0, 6.0]
    out.sum().backward()
    assert x.grad.tolist() == [0.0, 3.0]
    assert not scale.grad.is_cuda and scale.grad.item() == 3.0
    assert x.detach().mul_(ng.tensor(2.0)).tolist() == [2.0, 4.0]
    with pytest.raises(DeviceError, match=r"mul: .* cpu and cuda:0"):
        _ = ng.ones(2) * ng.tensor(2.0, device="cuda")


def test_gradients_of_the_other_device():
    x = ng.ones(2, device="cuda", requires_grad=True)
    with pytest.raises(DeviceError, match="cuda:0"):
        (x * x).backward(ng.ones(2))
    with pytest.raises(DeviceError, match=r"grad: .* cuda:0 and cpu"):
        x.grad = ng.ones(2)


def test_brackets_of_a_cpu_tensor_refuse_indices_of_a_gpu():
    x = ng.arange(4)
    for key in (ng.tensor([1]).cuda(), (ng.tensor([1]).cuda(), None), (x > 1).cuda()):
        with pytest.raises(DeviceError, match=r"index: .* cpu and cuda:0"):
            _ = x[key]
        with pytest.raises(DeviceError, match=r"index: .* cpu and cuda:0"):
            x[key] = 0


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ng.nn.functional.embedding_bag(
            (x > 1).long(), x.reshape(3, 1), (x > 1).long()[:1] * 0
        ),
        lambda x: ng.nn.functional.embedding_bag(
            (x > 1).long(), x.reshape(3, 1), (x > 1).long()[:1] * 0, 1.5, mode="max"
        ),
        lambda x: ng.autograd.grad(
            ng.nn.functional.embedding(
                (x > 1).long(), x.reshape(3, 1), scale_grad_by_freq=True
            ).sum(),
            x,
        )[0],
        lambda x: ng.searchsorted(x, 1.5),
        lambda x: x[True],
        lambda x: x[[]],
        lambda x: ng.autograd.grad(x.as_strided((2, 2), (1, 1)).sum(), x)[0],
        lambda x: ng.stack(ng.nonzero(x > 0, as_tuple=True)),
    ],
)
def test_what_an_operation_makes_itself_is_on_the_device(function):
    x = ng.tensor([0.0, 1.0, 2.0])
    here, there = [function(x.to(place).requires_grad_()) for place in ("cpu", "cuda")]
    assert there.is_cuda and there.tolist() == here.tolist()


OPTIMIZERS = [ng.optim.SGD, ng.optim.Adam, ng.optim.RMSprop, ng.optim.Adagrad]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimisers_keep_to_one_device(optimizer):
    here, there = ng.ones(2, requires_grad=True), ng.ones(2, device="cuda", requires_grad=True)
    for params in ([here, there], [there, here]):
        for p in params:
            p.grad = ng.ones_like(p)
        with pytest.raises(DeviceError, match=r"step: .* cuda:0 and cpu"):
            optimizer(params, 0.1).step()
        with pytest.raises(DeviceError, match="clip_grad_norm_: "):
            ng.nn.utils.clip_grad_norm_(params, 1.0)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_loaded_state_follows_its_parameter(optimizer):
    options = {"momentum": 0.9} if optimizer is ng.optim.SGD else {}
    params = [ng.ones(2, requires_grad=True), ng.ones(2, device="cuda", requires_grad=True)]
    steps = [optimizer([p], 0.1, **options) for p in params]
    for p, step in zip(params, steps, strict=True):
        p.grad = ng.tensor([1.0, 2.0]).to(p.device)
        step.step()
    steps[1].load_state_dict(steps[0].state_dict())
    for step in steps:
        step.step()
    assert params[1].tolist() == pytest.approx(params[0].tolist(), rel=1e-6)


def test_a_kernel_of_the_user():
    @ng.kernel
    def doubled(out, x):
        """out, x (n,): twice each element."""
        for i in range(x.size):
            out[i] = 2 * x[i]

    doubled.cuda(lambda out, x: None)
    with pytest.raises(DeviceError, match=r"doubled: .* cuda:0 and cpu"):
        ng.launch(doubled, ng.empty(2, device="cuda"), ng.ones(2))
