"""Hand-written CPU kernels: outputs first, then inputs, then scalars."""
