"""Exception classes; each docstring gives the cause and the remedy.

They subclass what a user of PyTorch or NumPy would catch. ``class_name`` is for their messages.
"""

from __future__ import annotations

__all__ = [
    "CacheFilledError",
    "CheckpointError",
    "DTypeError",
    "DeviceError",
    "DimError",
    "DomainError",
    "FormatError",
    "FormulaError",
    "GradError",
    "GradcheckError",
    "GraphFreedError",
    "NoTwinError",
    "NonFiniteError",
    "NotScalarError",
    "OutOfMemoryError",
    "RecordingError",
    "ShapeError",
    "StateDictError",
    "StateMadeError",
    "UninitializedError",
    "VersionError",
    "VmapError",
    "WorkerError",
]


class ShapeError(ValueError, RuntimeError):
    """Shapes do not fit together. Reshape, transpose or broadcast one of them."""


class DTypeError(TypeError, RuntimeError):
    """An operation does not take this dtype. Convert with ``x.to(dtype)``."""


class DomainError(ValueError, RuntimeError):
    """An element is outside of what the operation is defined on. Scale it, or clamp it."""


class DimError(IndexError):
    """A dimension or an index is out of range. Use -ndim to ndim - 1, or fix the index."""


class DeviceError(RuntimeError):
    """A device is missing, or tensors stand on different ones. Move them with ``x.to(device)``."""


class OutOfMemoryError(DeviceError):
    """The GPU has too little free memory; the message names the sizes. Use smaller batches."""


class NoTwinError(DeviceError, NotImplementedError):
    """An operation has no GPU kernel yet. Compute it on the CPU: ``op(x.cpu()).cuda()``."""


class GradError(RuntimeError):
    """The tape was used against its rules; the message names the op and the rule."""


class NotScalarError(GradError):
    """``backward()`` on a tensor with several elements. Pass ``gradient=`` or reduce it first."""


class GraphFreedError(GradError):
    """Backward a second time through a freed graph. Pass ``retain_graph=True`` the first time."""


class VersionError(GradError):
    """A tensor needed for backward was changed in place. Clone it, or change it after backward."""


class CheckpointError(GradError):
    """A checkpointed function did something else when it was computed again; see the message."""


class NonFiniteError(GradError, FloatingPointError):
    """An operation made NaN or inf; the message names it, the line and the place. Look there."""


class GradcheckError(RuntimeError):
    """The gradient written by hand is not the gradient measured by differences."""


class FormulaError(TypeError):
    """A scalar formula uses Python that cannot be translated. The message shows the line."""


class WorkerError(RuntimeError):
    """A worker process of a DataLoader ended or did not answer in time; the message says which."""


class StateDictError(RuntimeError):
    """Names or shapes in a state dict do not match the module."""


class UninitializedError(ValueError, AttributeError):
    """A parameter of a lazy module has no shape yet. Call the module once, or load its state."""


class FormatError(ValueError):
    """A file is truncated, damaged, or not of the format its reader expects."""


class VmapError(RuntimeError):
    """What stands for all elements of a ``vmap`` is used as one. Pass ``chunk_size=1`` to it."""


class RecordingError(RuntimeError):
    """A function cannot be compiled as it is; the message names the line and the way out."""


class StateMadeError(RecordingError):
    """A recorded function makes state that later calls find: it has to be run once before."""


class CacheFilledError(StateMadeError):
    """A recorded function fills a ``functools.lru_cache``: it has to be run once before."""


def class_name(value: object) -> str:
    """What the class of ``value`` is called, with its library where it is a Tensor and not ours."""
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    return f"{library}.{kind.__name__}" if kind.__name__ == "Tensor" else kind.__name__
