"""Random draws that have a row for each example: the noise of a GAN's generator.

What is drawn by a seed does not depend on data, so a network that is applied to it looks
like a weight of any shape. Where the losses of the examples and those of the draws are
added row by row, it is rather like data, and rules apply.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.graph.uses import Use


def drawn_rows(
    losses: tf.Tensor, uses: Sequence[Use], group: int = 1
) -> list[tf.Tensor]:
    """Draws of which each row takes part in the loss of its own example only.

    That is proven for all of them together by the analysis that proves it for data. A
    matrix of noise may be as long as the batch by chance.

    Args:
        losses: `[batch]`.
        uses: Of the variables, before draws are taken for data.
        group: Examples per microbatch.
    """
    weights = [use.weight for use in uses if use.view is None]
    candidates = [
        output
        for op in graph_lib.ancestors(weights)
        if op.type.startswith("StatelessRandom")
        for output in op.outputs
        if output.shape.rank and output.shape[0] == losses.shape[0]
    ]
    if not candidates:
        return []
    # Imported late: the analysis walks graphs with the help of this package.
    from keras_dp_ext.verification.row_analysis.analyse import analyse

    sources = graph_lib.data_sources(graph_lib.ancestors([losses]), losses.shape[0])
    verdict = analyse(losses, [*sources, *candidates], group)
    return candidates if verdict.is_proven else []
