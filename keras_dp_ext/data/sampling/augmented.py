"""Augmentation multiplicity: several views of an example, one loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf


def augmented(
    batches: tf.data.Dataset, views: Sequence[Callable[[tf.Tensor], tf.Tensor]]
) -> tf.data.Dataset:
    """Several views of each example, which make one loss.

    `[batch, ...]` inputs become `[batch, views, ...]`, and labels `[batch, views]`. A model
    that applies `dp.data.EachView` gives a loss for each view; their mean is the
    loss of the example. Its gradient is clipped as one, so that sensitivity and epsilon
    are what they are without views: an example still adds one vector of norm at most
    `l2_norm_clip`. Averaged gradients vary less, so more of them survives the noise.

    Args:
        batches: What `dp.data.poisson_batches` and its siblings return, of inputs and
            labels.
        views: Functions of a batch of inputs, of which each makes one view. They must
            treat each example alone, which is checked.

    Returns:
        The batches of views, with the same privacy label.

    Example:

    >>> import numpy as np, keras_dp_ext as dp
    >>> images, labels = np.zeros([60, 8, 8, 1], "float32"), np.zeros([60], "int32")
    >>> lots = dp.data.poisson_batches(images, labels, batch_size=10)
    >>> lots = dp.data.augmented(lots, [tf.identity, tf.image.flip_left_right])
    >>> [array.shape[1:].as_list() for array in lots.element_spec[:2]]
    [[2, 8, 8, 1], [2]]

    References:
        De et al., [Unlocking high-accuracy differentially private image
        classification through scale](https://arxiv.org/abs/2204.13650), 2022.
    """
    if not views or not all(callable(view) for view in views):
        raise ValueError(
            f"Argument `views` must be functions, at least one. Received: views={views}"
        )

    def with_views(x: tf.Tensor, y: tf.Tensor, *weights: Any) -> tuple[Any, ...]:
        inputs = tf.stack([view(x) for view in views], axis=1)
        # The weight of an example, 0 for padding, is that of all its views.
        weights = tuple(weight[:, tf.newaxis] for weight in weights)
        return (inputs, tf.stack([y] * len(views), axis=1), *weights)

    return batches.map(with_views)
