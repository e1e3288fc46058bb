"""cuDNN is not used. Results are the same bits in every run, without asking for it here."""

__all__ = ["allow_tf32", "benchmark", "deterministic", "enabled", "is_available", "version"]

enabled = benchmark = deterministic = allow_tf32 = False


def is_available() -> bool:
    """False: convolutions are kernels of our own."""
    return False


def version() -> None:
    """None: there is no cuDNN."""
    return None
