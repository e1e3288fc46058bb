"""Apple's GPUs, which numbagrad does not know."""

__all__ = ["is_available", "is_built"]


def is_available() -> bool:
    """False: devices are "cpu" and "cuda"."""
    return False


is_built = is_available
