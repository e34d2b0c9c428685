"""Constants that have a row for each example: noise, or something frozen and repeated.

The noise of a GAN's generator, drawn by a seed, does not depend on data, nor does a frozen
table that is repeated for each example (DeBERTa's under LoRA). So a network that is
applied to them looks like a weight of any shape. Where each of their rows takes part in
the loss of its own example only, they are rather like data, and rules apply.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import tensorflow as tf

from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.graph.uses import (
    Use,
    adds_batch_axis,
    joins_of_repeat,
)


def constant_rows(
    losses: tf.Tensor, uses: Sequence[Use], weights: Container[int], group: int = 1
) -> list[tf.Tensor]:
    """Constants of which each row takes part in the loss of its own example only.

    That is proven for all of them together by the analysis that proves it for data. A
    matrix may be as long as the batch by chance.

    Args:
        losses: `[batch]`.
        uses: Of the variables, before constants are taken for data.
        weights: Ids of the tensors that are made of variables.
        group: Examples per microbatch.
    """
    batch = losses.shape[0]
    candidates = [
        tensor
        for op in graph_lib.ancestors([use.weight for use in uses if use.view is None])
        for tensor in _with_rows(op, weights, batch)
        if tensor.shape.rank and tensor.shape[0] == batch
    ]
    if not candidates:
        return []
    # Imported late: the analysis walks graphs with the help of this package.
    from keras_dp_ext.verification.row_analysis.analyse import analyse

    sources = graph_lib.data_sources(graph_lib.ancestors([losses]), batch)
    verdict = analyse(losses, [*sources, *candidates], group)
    return candidates if verdict.is_proven else []


def _with_rows(
    op: tf.Operation, weights: Container[int], batch: int | None
) -> list[tf.Tensor]:
    """Where an op draws, or repeats a constant, for each example."""
    if op.type.startswith("StatelessRandom"):
        return list(op.outputs)
    if id(op.inputs[0] if op.inputs else None) in weights:
        return []
    if not op.outputs or not op.outputs[0].dtype.is_floating:
        return []
    if not adds_batch_axis(op, batch):
        return []
    if op.outputs[0].shape[0] == batch:
        return [op.outputs[0]]
    return [user.outputs[0] for user in joins_of_repeat(op)]
