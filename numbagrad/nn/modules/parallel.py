"""Layers that spread work over several GPUs in PyTorch, for programs that name them.

numbagrad uses one device, so they do here what PyTorch's do where there is nothing to spread over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import DeviceError
from ...tensor import Tensor
from .batchnorm import _BatchNorm
from .module import Module

__all__ = ["DataParallel", "SyncBatchNorm"]


class DataParallel(Module):
    """Calls ``module`` on the one device there is: nothing is split.

    The names in ``state_dict()`` begin with "module.", as PyTorch's, so that what was saved there
    is loaded here. device_ids, output_device: none, or the one GPU, 0. dim is not used.
    Raises DeviceError for further GPUs.

    >>> net = DataParallel(ng.nn.Linear(2, 1))
    >>> list(net.state_dict()), net(ng.ones(3, 2)).shape
    (['module.weight', 'module.bias'], ng.Size([3, 1]))
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
    ):
        super().__init__()
        ids = [*(device_ids or ()), *([] if output_device is None else [output_device])]
        for each in ids:
            if (each if isinstance(each, int) else getattr(each, "index", None) or 0) > 0:
                raise DeviceError(
                    f"DataParallel: a process uses one GPU, so device_ids can be [0], but got "
                    f"{device_ids!r}. Leave it out."
                )
        self.module = module
        self.device_ids: list[Any] = []
        self.dim = dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """What the module gives."""
        return self.module(*inputs, **kwargs)


class SyncBatchNorm(_BatchNorm):
    """``BatchNorm*d`` for any number of dimensions from 2 on: there is one process to sync.

    process_group must be None.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ):
        _refuse_group(process_group)
        modes = affine, track_running_stats, device, dtype
        super().__init__(num_features, eps, momentum, *modes, bias=bias)
        self.process_group = None

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(
                f"SyncBatchNorm: expected at least 2D input (got {input.dim()}D input of size "
                f"{list(input.shape)})."
            )

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """``module`` with SyncBatchNorm for each BatchNorm in it, of the same parameters.

        Modules in it are replaced in place; a BatchNorm itself comes back as another.
        """
        _refuse_group(process_group)
        out = module
        if isinstance(module, _BatchNorm):
            modes = module.affine, module.track_running_stats
            out = cls(module.num_features, module.eps, module.momentum, *modes)
            for name in ("weight", "bias"):
                setattr(out, name, getattr(module, name))
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                setattr(out, name, getattr(module, name))
            out.training = module.training
        for name, child in module.named_children():
            setattr(out, name, cls.convert_sync_batchnorm(child))
        return out


def _refuse_group(group: Any) -> None:
    if group is not None:
        raise ValueError(
            f"SyncBatchNorm: there are no process groups here, for a process works alone; got "
            f"process_group={group!r}. Leave it out."
        )
