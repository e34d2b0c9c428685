"""AdaClip: centres and scales gradients by what earlier releases have shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from keras_dp_ext._checks import check_in, check_noise_multiplier, check_positive
from keras_dp_ext.accounting.claim import Claim
from keras_dp_ext.accounting.sensitivity import gaussian_release
from keras_dp_ext.mechanisms.base import Mechanism
from keras_dp_ext.mechanisms.slots import slot_maker

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_dp_ext.gradients import PerExampleGradients


class AdaClip(Mechanism):
    """Clips `(g - a) / b` to norm 1, adds noise, and undoes the transformation.

    `a` is a moving average of the released gradients, and
    `b_i = sqrt(s_i * sum_j s_j / gamma)` follows from moving standard deviations `s_i`
    about it: the transformation with the least noise under which the expected squared
    norm is `gamma`. Both come from earlier releases, so they cost no privacy: measured
    in units of `b`, a row moves the sum by at most 1, and the noise has the standard
    deviation `noise_multiplier`.

    Where the published algorithm takes one row a step, a lot has many: the mean over a
    lot of `L` rows varies `L` times less than a row, and its noise `L**2` times less,
    which is taken into account in `s`.

    `DirectionalSGD(direction="adaclip")` scales, but does not centre, and is a good deal
    faster: here every row is made explicitly.

    Args:
        noise_multiplier: Standard deviation of the noise in units of the bound.
        gamma: Expected squared norm after the transformation, in (0, 1]: at most that
            share of the rows is clipped. Less means less clipping and more noise.
        mean_decay: Decay of the mean, `beta_1`.
        variance_decay: Decay of the variances, `beta_2`.
        least_variance: `h_1`, below which no variance is taken.
        greatest_variance: `h_2`, above which none is taken.

    Example:

    >>> import keras_dp_ext as dp
    >>> optimizer = dp.optimizers.AdaClipSGD(learning_rate=0.1, gamma=0.5)
    >>> optimizer.mechanism.claim(num_parameters=10).proven
    GaussianRelease(noise_multiplier=1.1)

    References:
        Pichapati, Suresh, Yu, Reddi, Kumar, "AdaCliP: Adaptive Clipping for Private
        SGD" (2019), Algorithms 1 and 2; Xiang et al. (2021), section 6, compare with it.
    """

    name = "adaclip"

    def __init__(
        self,
        noise_multiplier: float = 1.1,
        gamma: float = 1.0,
        mean_decay: float = 0.99,
        variance_decay: float = 0.9,
        least_variance: float = 1e-12,
        greatest_variance: float = 10.0,
    ):
        check_noise_multiplier(noise_multiplier)
        check_in("gamma", gamma, "(0, 1]")
        check_in("mean_decay", mean_decay, "[0, 1)")
        check_in("variance_decay", variance_decay, "[0, 1)")
        check_positive("least_variance", least_variance)
        check_positive("greatest_variance", greatest_variance)
        if not least_variance <= greatest_variance:
            raise ValueError(
                "Argument `least_variance` must not exceed `greatest_variance`. "
                f"Received: {least_variance} and {greatest_variance}"
            )
        self.noise_multiplier = noise_multiplier
        self.gamma = gamma
        self.mean_decay = mean_decay
        self.variance_decay = variance_decay
        self.least_variance = least_variance
        self.greatest_variance = greatest_variance

    def build(self, variables: Sequence[Any], add_variable: Callable[..., Any]) -> None:
        slots = slot_maker(variables, add_variable)
        self._mean = slots("mean")
        # Relative to where they start, `sqrt(h_1 h_2)`, and as logarithms: zeros are
        # the state at the start.
        self._log_variance = slots("log_variance")

    def _centres(self) -> list[tf.Tensor]:
        import tensorflow as tf

        return [tf.convert_to_tensor(mean) for mean in self._mean]

    def _variances(self) -> list[tf.Tensor]:
        import tensorflow as tf

        start = (self.least_variance * self.greatest_variance) ** 0.5
        return [start * tf.exp(tf.convert_to_tensor(log)) for log in self._log_variance]

    def _scales(self) -> list[tf.Tensor]:
        """`b`, positive and finite whatever has been released."""
        import tensorflow as tf

        deviations = [tf.sqrt(variance) for variance in self._variances()]
        total = tf.add_n([tf.reduce_sum(deviation) for deviation in deviations])
        return [tf.sqrt(deviation * total / self.gamma) for deviation in deviations]

    def bound(self, gradients: PerExampleGradients) -> list[tf.Tensor]:
        import tensorflow as tf

        centres, scales = self._centres(), self._scales()

        def shrunk(rows: list[tf.Tensor]) -> list[tf.Tensor]:
            moved = [
                (row - centre) / scale
                for row, centre, scale in zip(rows, centres, scales, strict=True)
            ]
            norm = tf.sqrt(tf.add_n([_sum_of_squares(row) for row in moved]))
            # A row of zeros is padding, or may as well be; one whose norm overflows is
            # dropped. Neither adds anything.
            present = tf.add_n([_sum_of_squares(row) for row in rows]) > 0
            kept = present & tf.math.is_finite(norm)
            factor = tf.where(kept, tf.minimum(1.0, 1.0 / norm), 0.0)
            return [
                # `where`, for 0 times infinity is not 0.
                tf.where(
                    _for_each_row(kept, row),
                    _for_each_row(factor, row) * row * scale,
                    0.0,
                )
                for row, scale in zip(moved, scales, strict=True)
            ]

        return gradients.sum_of(shrunk)

    def draw_noise(
        self, shapes: Sequence[Any], seed: tf.Tensor, step: tf.Tensor
    ) -> list[tf.Tensor]:
        import tensorflow as tf

        from keras_dp_ext.mechanisms.model_noise import standard_normals

        del step
        return [
            tf.cast(self.noise_multiplier * scale, normal.dtype) * normal
            for scale, normal in zip(
                self._scales(), standard_normals(shapes, seed), strict=True
            )
        ]

    def refine(self, noised: list[tf.Tensor], step: tf.Tensor) -> list[tf.Tensor]:
        import tensorflow as tf

        del step
        rows = self.expected_rows
        scales, variances = self._scales(), self._variances()
        released = []
        for index, (total, centre) in enumerate(
            zip(noised, self._centres(), strict=True)
        ):
            # Around what is known, the lot's mean is off by its own variation and noise.
            deviation = total / rows
            noise = self.noise_multiplier * scales[index] / rows
            seen = rows * (tf.square(deviation) - tf.square(noise))
            seen = tf.clip_by_value(seen, self.least_variance, self.greatest_variance)
            kept = self.variance_decay
            variance = kept * variances[index] + (1 - kept) * seen
            start = (self.least_variance * self.greatest_variance) ** 0.5
            log = tf.math.log(variance / start)
            finite = tf.reduce_all(tf.math.is_finite(deviation))
            old = tf.convert_to_tensor(self._log_variance[index])
            self._log_variance[index].assign(tf.where(finite, log, old))
            moved = centre + (1 - self.mean_decay) * deviation
            self._mean[index].assign(tf.where(finite, moved, centre))
            released.append(total + rows * centre)
        return released

    def claim(self, num_parameters: int, examples_per_microbatch: int = 1) -> Claim:
        del num_parameters
        return Claim(
            gaussian_release(self.noise_multiplier, 1.0, examples_per_microbatch)
        )


def _sum_of_squares(row: tf.Tensor) -> tf.Tensor:
    import tensorflow as tf

    return tf.reduce_sum(tf.square(row), axis=list(range(1, row.shape.rank)))


def _for_each_row(values: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
    """`values` of shape `[rows]`, ready to be combined with `[rows, *shape]`."""
    import tensorflow as tf

    return tf.reshape(values, [-1] + [1] * (row.shape.rank - 1))
