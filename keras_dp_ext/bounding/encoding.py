"""Encoding as a bound: every row is dominated by a vector of a codebook."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

from keras_dp_ext._checks import check_one_of
from keras_dp_ext.accounting.sensitivity import CodebookSensitivity
from keras_dp_ext.bounding import codebook as codebooks
from keras_dp_ext.bounding.base import Bound

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_dp_ext.accounting.sensitivity import Sensitivity
    from keras_dp_ext.gradients import PerExampleGradients


# XLA compiles its passes for each matrix. Two chunks at a time keep two cores busy.
_MATRICES = 1


@dataclasses.dataclass(frozen=True)
class Encoding(Bound):
    """Clamps gradients rank by rank to a codebook's vectors.

    Args:
        codebook: A `keras_dp_ext.bounding.Codebook`; `None` is the paper's.
        ranking: "bucket" or, as a slow reference, "exact"; see
            `keras_dp_ext.bounding.encode_rows.encode_rows`.

    Example:

    >>> from keras_dp_ext import bounding
    >>> bounding.Encoding().codebook.norm
    1.0

    References:
        Nasr, Shokri, Houmansadr (2020), Algorithm 2.
    """

    codebook: Any = None
    ranking: str = "bucket"

    def __post_init__(self) -> None:
        check_one_of("ranking", self.ranking, codebooks.RANKINGS)
        object.__setattr__(self, "codebook", codebooks.get(self.codebook))

    def check_variables(self, sizes: list[int]) -> None:
        """Raises unless the codebook is made for variables of these sizes."""
        layers = self.codebook.layer_sizes
        if layers is not None and list(layers) != sizes:
            raise ValueError(
                "Argument `codebook` must have the sizes of the trainable variables, "
                f"{sizes}, as its `layer_sizes`. Received: layer_sizes={layers}"
            )

    def sum(self, gradients: PerExampleGradients) -> list[tf.Tensor]:
        from keras_dp_ext.bounding.encode_rows import encode_rows
        from keras_dp_ext.gradients.chunks import chunk_bytes
        from keras_dp_ext.gradients.rules.device import runs_on_cpu

        sizes = [shape.num_elements() for shape in gradients.shapes]
        self.check_variables(sizes)
        blocks = self.codebook.blocks(sum(sizes))
        # Encoding holds integers of the same size beside the gradients.
        limit = max(1, 2 * chunk_bytes() // 3)
        on_cpu = runs_on_cpu()
        by_bucket = self.ranking == "bucket"

        def encode(summed: bool) -> Any:
            if by_bucket and not on_cpu:
                # A GPU would hand the integers between its two passes to the host.
                return _fused(encode_rows(blocks, self.ranking, summed=summed))
            return encode_rows(blocks, self.ranking, _fused, summed)

        if len(blocks) == 1:
            return gradients.sum_by(
                encode(summed=True), limit, _MATRICES, products=by_bucket and on_cpu
            )
        return gradients.sum_of(encode(summed=False), limit, gradients.shapes)

    def sensitivity(self, num_parameters: int) -> Sensitivity:
        return CodebookSensitivity(self.codebook, num_parameters)


def _fused(function: Any) -> Any:
    """Compiles what passes over all coordinates by XLA, also where the model is not.

    Bucket ranking is a dozen passes over all per-example gradients, which XLA
    fuses into a few: a whole step takes a third less time. The engine's chunks
    have one shape, so that this compiles once. Not in eager mode, where each call
    would compile anew, and not on macOS, whose accelerator has no XLA.
    """
    import tensorflow as tf

    if tf.executing_eagerly() or sys.platform == "darwin":
        return function
    return tf.function(function, jit_compile=True, autograph=False)
