"""Per-example gradient rules, one file for each family of ops."""

from keras_dp_ext.gradients.rules import (
    broadcast,
    convolution,
    einsum,
    lookup,
    matmul,
)

__all__ = ["broadcast", "convolution", "einsum", "lookup", "matmul"]
