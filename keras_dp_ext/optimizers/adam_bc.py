"""Adam without the bias that noise gives its second moment."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_dp_ext._compat import keras_internals


class AdamBC(keras.optimizers.Adam):
    """Adam that subtracts the variance of the noise from its second moment.

    The average of squared private gradients is that of the squared gradients *plus* the
    variance of the noise, `(sigma C / batch)**2`, which is known. Where it prevails, Adam
    divides all coordinates by the same number and is momentum SGD; without it, the
    step is `m / sqrt(max(v - variance, epsilon))`. All of this follows from what was
    released: it costs no privacy.

    Use it as `dp.optimizers.DPAdamBC`; without a private optimizer around it there is
    no noise to subtract.

    Args:
        learning_rate: As for Adam; a smaller one than Adam's under noise.
        beta_1: As for Adam.
        beta_2: As for Adam.
        epsilon: The least second moment, the paper's gamma'. It is under the root, and
            limits the steps of coordinates that are noise alone.
        weight_decay: As for Adam.
        clipnorm: As for Adam.
        clipvalue: As for Adam.
        global_clipnorm: As for Adam.
        use_ema: As for Adam.
        ema_momentum: As for Adam.
        ema_overwrite_frequency: As for Adam.
        loss_scale_factor: As for Adam.
        gradient_accumulation_steps: As for Adam.
        name: As for Adam.
        **kwargs: As for Adam, but for `amsgrad`.

    Example:

    >>> import keras_dp_ext as dp
    >>> optimizer = dp.optimizers.DPAdamBC(learning_rate=1e-3, noise_multiplier=1.1)
    >>> optimizer.beta_2
    0.999

    References:
        Tang, Shpilevskiy, Lecuyer, "DP-AdamBC: Your DP-Adam Is Actually DP-SGD (Unless
        You Apply Bias Correction)" (2024), Algorithm 1.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float | None = None,
        clipnorm: float | None = None,
        clipvalue: float | None = None,
        global_clipnorm: float | None = None,
        use_ema: bool = False,
        ema_momentum: float = 0.99,
        ema_overwrite_frequency: int | None = None,
        loss_scale_factor: float | None = None,
        gradient_accumulation_steps: int | None = None,
        name: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(
            learning_rate=learning_rate,
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=epsilon,
            weight_decay=weight_decay,
            clipnorm=clipnorm,
            clipvalue=clipvalue,
            global_clipnorm=global_clipnorm,
            use_ema=use_ema,
            ema_momentum=ema_momentum,
            ema_overwrite_frequency=ema_overwrite_frequency,
            loss_scale_factor=loss_scale_factor,
            gradient_accumulation_steps=gradient_accumulation_steps,
            name=name,
            **kwargs,
        )
        if self.amsgrad:
            raise ValueError(
                "Argument `amsgrad` must be False: the greatest second moment so far "
                "is mostly noise. Received: amsgrad=True"
            )

    def _gradient_noise_variance(self) -> float:
        """Variance of the noise in each coordinate of the gradient that `apply` gets."""
        return 0.0

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        m, v = keras_internals.adam_moments(self, variable)
        gradient = ops.cast(gradient, variable.dtype)
        step = ops.cast(self.iterations + 1, variable.dtype)
        self.assign_add(m, (gradient - m) * (1 - self.beta_1))
        self.assign_add(v, (ops.square(gradient) - v) * (1 - self.beta_2))
        mean = m / (1 - ops.power(ops.cast(self.beta_1, variable.dtype), step))
        second = v / (1 - ops.power(ops.cast(self.beta_2, variable.dtype), step))
        second = ops.maximum(second - self._gradient_noise_variance(), self.epsilon)
        rate = ops.cast(learning_rate, variable.dtype)
        self.assign_sub(variable, rate * mean / ops.sqrt(second))
