"""Training programs as PyTorch's users write them, run by both libraries, and compiled."""
