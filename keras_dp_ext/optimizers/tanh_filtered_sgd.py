"""SGD with tanh-filtered gradients, against exploding ones. NOT private."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras
from keras import ops

from keras_dp_ext._checks import check_positive

if TYPE_CHECKING:
    import tensorflow as tf


@keras.saving.register_keras_serializable("keras_dp_ext")
class TanhFilteredSGD(keras.optimizers.SGD):
    """SGD on `c * tanh(slope * gradient / k)`, element-wise. It is NOT private.

    Amian proposes the filter also against exploding gradients of recurrent
    networks: however steep the loss, no weight moves by more than
    `learning_rate * c` in a step (without momentum), and small gradients pass
    unchanged but for the factor `c * slope / k`.

    There is no per-example bound and no noise. `PrivacyAccountant` refuses this
    optimizer; for privacy use `TanhSGD`.

    Args:
        learning_rate: See `keras.optimizers.SGD`.
        output_range: `c`, the filter's greatest output.
        active_range: `k`, the inputs beyond which the filter saturates.
        slope: Factor before the tangent's argument; 0.5 is the paper's Eq. 4.
        **kwargs: The other arguments of `keras.optimizers.SGD`.

    Example:

    >>> model = keras.Sequential([keras.Input([None, 1]), keras.layers.SimpleRNN(8)])
    >>> model.compile(TanhFilteredSGD(learning_rate=0.05, active_range=2.0), "mse")

    References:
        Amian, "Improving the Algorithm of Deep Learning with Differential
        Privacy" (2021), section III.
    """

    def __init__(
        self,
        learning_rate: Any = 0.01,
        output_range: float = 1.0,
        active_range: float = 1.0,
        slope: float = 1.0,
        **kwargs: Any,
    ):
        check_positive("output_range", output_range)
        check_positive("active_range", active_range)
        check_positive("slope", slope)
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.output_range = output_range
        self.active_range = active_range
        self.slope = slope

    def update_step(
        self, gradient: tf.Tensor, variable: Any, learning_rate: Any
    ) -> None:
        filtered = self.output_range * ops.tanh(
            gradient * (self.slope / self.active_range)
        )
        super().update_step(filtered, variable, learning_rate)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "output_range": self.output_range,
            "active_range": self.active_range,
            "slope": self.slope,
        }
