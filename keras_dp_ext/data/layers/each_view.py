"""A model on every view of an example."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable(package="keras_dp_ext")
class EachView(keras.layers.Layer):
    """Applies a model to all views of each example: `[batch, views, ...]`.

    `dp.data.augmented` makes such inputs. The outputs have the same two axes in front, and
    so do the labels, so that the loss of an example is the mean of the losses of its
    views: one loss, one gradient, one clip.

    Args:
        inner: The model (or layer) that takes one view. Use it alone to predict.
        **kwargs: Arguments of `keras.layers.Layer`.

    Example:

    >>> inner = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10)])
    >>> EachView(inner)(tf.zeros([5, 2, 8, 8, 1])).shape
    TensorShape([5, 2, 10])
    """

    def __init__(self, inner: keras.layers.Layer, **kwargs: Any):
        super().__init__(**kwargs)
        self.inner = inner

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        if not self.inner.built:
            self.inner.build((None, *input_shape[2:]))
        self.built = True

    def call(self, inputs: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        views, *rest = inputs.shape[1:]
        outputs = self.inner(
            keras.ops.reshape(inputs, (-1, *rest)),
            **({"training": training} if isinstance(self.inner, keras.Model) else {}),
        )
        return keras.ops.reshape(outputs, (-1, views, *outputs.shape[1:]))

    def compute_output_shape(
        self, input_shape: tuple[int | None, ...]
    ) -> tuple[int | None, ...]:
        batch, views, *rest = input_shape
        if views is None or None in rest:
            raise ValueError(
                "EachView needs to know the number of views and the size of each. "
                f"Received: input_shape={input_shape}"
            )
        return (batch, views, *self.inner.compute_output_shape((None, *rest))[1:])

    def get_config(self) -> dict[str, Any]:
        inner = keras.saving.serialize_keras_object(self.inner)
        return {**super().get_config(), "inner": inner}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> EachView:
        inner = keras.saving.deserialize_keras_object(config.pop("inner"))
        return cls(inner, **config)
