"""Denoising: the update shrinks where it cannot be told from pure noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from keras_dp_ext._checks import check_one_of
from keras_dp_ext._saved_functions import function_config, function_from_config
from keras_dp_ext.noise import Noise

if TYPE_CHECKING:
    import tensorflow as tf

DISTANCES = ("ks", "wasserstein", "energy")

#: A name of `DISTANCES`, or `distance(values, noise)`; see `Denoising`.
Distance = str | Callable[[Any, Noise], Any]

# Knots at which the two distribution functions are compared. They are
# equidistant in x / (1 + |x|), so that neither the bulk nor a tail is missed; no
# cell between two of them has more than 2e-5 of any noise's probability.
_CELLS = 2**16


class Denoising:
    """Multiplies a noised vector by its distance from the noise distribution.

    The coordinates of the vector are taken as a sample, whose distribution
    function `G` is compared with that of the noise, `F`. The noise *distribution*
    is public, so this is post-processing; comparing with the drawn noise would
    not be.

    All three distances need `G` at fixed points only, which is a histogram: linear
    in the number of parameters, without a sort (which under XLA on a CPU takes
    100 times as long for a million parameters).

    Args:
        noise: The distribution of every coordinate of the noise.
        distance: "ks", the paper's: Kolmogorov-Smirnov, `max |G - F|`.
            "wasserstein": `integral |G - F|`. "energy": the square root of
            `2 integral (G - F)**2`. The last two are in units of the noise's
            scale; for Cauchy noise the second is not finite in theory, and cut
            off at 32767 scales here. Or an oracle of your own, the paper's `O`:
            a function `distance(values, noise)` from the noised vector (a float32
            tensor) and its `Noise` to a scalar tensor. It must not use private
            data. To be saved with a model it must be registered with
            `keras.saving.register_keras_serializable`.

    Raises:
        ValueError: If `distance` is not known.

    Example: pure noise is hardly told from noise, a constant far away is.

    >>> import tensorflow as tf
    >>> from scipy import stats
    >>> from keras_dp_ext.noise import Gaussian
    >>> denoising = Denoising(Gaussian(1.0))
    >>> pure = tf.constant(stats.norm.ppf(np.linspace(0.001, 0.999, 999)), tf.float32)
    >>> [round(float(denoising.factor([x])), 1) for x in (pure, pure + 10.0)]
    [0.0, 1.0]

    References:

    - Nasr, Shokri, Houmansadr (2020), section 3.2.
    """

    def __init__(self, noise: Noise, distance: Distance = "ks"):
        self.noise = noise
        self.distance = get_distance(distance)
        if callable(self.distance):
            return
        # Inner knots in units of the scale, ascending; the middle one is 0.
        knots = np.arange(1, _CELLS) * (2.0 / _CELLS) - 1.0
        knots = knots / (1.0 - np.abs(knots))
        # The smaller tail at each knot: next to 1, float32 cannot tell tails apart.
        self._noise_tail = noise.with_scale(1.0).cdf(-np.abs(knots))
        # Trapezoidal rule.
        steps = np.diff(knots)
        self._weights = 0.5 * (np.append(steps, 0.0) + np.append(0.0, steps))

    def factor(
        self, noised: Sequence[tf.Tensor], noise_factor: tf.Tensor | float = 1.0
    ) -> tf.Tensor:
        """The distance between the vector's coordinates and the noise.

        Args:
            noised: The noised sum, in as many tensors as there are variables.
            noise_factor: What the noise was multiplied by in this step.

        Returns:
            A float32 scalar.
        """
        import tensorflow as tf

        flat = tf.concat([tf.reshape(x, [-1]) for x in noised], axis=0)
        if callable(self.distance):
            found = self.distance(flat / noise_factor, self.noise)
            return tf.reshape(tf.cast(found, tf.float32), [])
        unit = 1.0 / (self.noise.scale * noise_factor)
        counts = _histogram(flat * unit)
        size = sum(x.shape.num_elements() for x in noised)
        half = _CELLS // 2
        # Counted as integers, cut as numbers: GPUs leave 32-bit integers to the host.
        below = tf.cast(tf.cumsum(counts), tf.float32)[:half]
        above = tf.cast(tf.cumsum(counts, reverse=True), tf.float32)[half + 1 :]
        tail = tf.concat([below, above], axis=0) / size
        gap = tf.abs(tail - tf.constant(self._noise_tail, tf.float32))
        if self.distance == "ks":
            return tf.reduce_max(gap)
        weights = tf.constant(self._weights, tf.float32)
        if self.distance == "wasserstein":
            return tf.reduce_sum(weights * gap)
        return tf.sqrt(2.0 * tf.reduce_sum(weights * tf.square(gap)))


def get_distance(
    identifier: Distance | Mapping[str, Any], argument: str = "distance"
) -> Distance:
    """The distance that `identifier` stands for: a name, a function, a saved function.

    Raises:
        ValueError: If it is none of these.
    """
    if isinstance(identifier, Mapping):
        identifier = function_from_config(identifier)
    if callable(identifier):
        return identifier
    check_one_of(argument, identifier, DISTANCES)
    return identifier


def distance_config(distance: Distance) -> Any:
    """What JSON can hold, and `get_distance` turns back."""
    return distance if isinstance(distance, str) else function_config(distance)


def _histogram(values: tf.Tensor) -> tf.Tensor:
    """How many values lie in each cell between the knots."""
    import tensorflow as tf

    # In the form 1 - 1 / (1 + |x|), infinities do not turn into NaN.
    fraction = tf.sign(values) * (1.0 - 1.0 / (1.0 + tf.abs(values)))
    position = (fraction + 1.0) * (_CELLS / 2)
    # What no comparison orders is in the first cell, on every device.
    position = tf.where(tf.math.is_nan(position), 0.0, position)
    cell = tf.cast(tf.clip_by_value(position, 0.0, _CELLS - 1.0), tf.int32)
    ones = tf.cast(tf.ones_like(values), tf.int32)
    return tf.math.unsorted_segment_sum(ones, cell, _CELLS)
