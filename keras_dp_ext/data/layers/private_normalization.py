"""Private mean and deviation of the inputs, as a Keras preprocessing layer."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dp_ext._checks import check_in, check_l2_norm_clip
from keras_dp_ext.data.layers.privately_adapted import PrivatelyAdapted, batches_of

# The share of the two clips in what `adapt` may spend (1 / noise_multiplier**2).
_CLIP_SHARE = 0.1

# The clips are chosen among 2**(k / 2); a grid that no data have shaped.
_GRID = 2.0 ** (np.arange(-60, 61) / 2)

# How much of the sensitivity the sum of weights takes. It is large, so little is enough.
_WEIGHT = 0.25

# A variance is not taken to be below so many deviations of its noise.
_FLOOR = 3.0


@keras.saving.register_keras_serializable(package="keras_dp_ext")
class PrivateNormalization(PrivatelyAdapted):
    """Shifts and scales inputs by private means and deviations.

    The private counterpart of `keras.layers.Normalization`:

        outputs = (inputs / scales - mean) / deviation ** power

    `adapt` is accounted as one Gaussian release of multiplier `noise_multiplier`, which
    enters the ledger of every model that has the layer by itself.

    **What is released, and why it costs no more.** For one example let m be the mean of
    its (scaled) inputs over all axes but `axis`, and s the mean of their squares. With
    clips M and S, and w = min(1, M / |m|, S / |s|), it adds the vector

        (w m / M, w s / S, w / 4)

    to a sum. Its parts have norm at most 1, 1 and 1/4, so the whole has at most
    sqrt(2 + 1/16), whatever the example is; noise of that many times
    `b` in each coordinate is a Gaussian release of multiplier b. Means and
    variances are those of the examples weighted by w, which follow from the noised sums.

    The clips are `l2_norm_clip`, public numbers; or else medians of |m| and |s|, found
    privately: each example adds 1 to one bin of each of two histograms over a fixed grid,
    a vector of norm sqrt(2), with noise of multiplier a. Given these, the sums are
    another Gaussian release, on the same examples: together their multiplier is
    (a**-2 + b**-2)**-0.5, which is `noise_multiplier`; the histograms take a tenth.

    A variance that is drowned in noise is taken to be a few deviations of that noise,
    which follow from what was released: no channel is dropped or chosen by looking at
    the data.

    Args:
        axis: The axis, or axes, whose entries have a mean and a deviation of their own.
            All other axes, but for the first, are averaged over.
        noise_multiplier: Standard deviation of the noise relative to the sensitivity,
            for all that `adapt` releases. Zero is without privacy, for comparison.
        scales: Public numbers, one or one for each entry of `axis`, by which inputs are
            divided first, so that entries of different size share one clip. A guess
            is enough; it must not be computed from private data.
        power: 1 gives all entries deviation 1; less leaves a part of their differences.
        l2_norm_clip: Public clips `(M, S)`. By default they are found privately.
        **kwargs: Arguments of `keras.layers.Layer`.

    Example:

    >>> x = np.random.default_rng(0).normal([5.0, 0.0], [1.0, 3.0], size=[20_000, 2])
    >>> normalization = PrivateNormalization(noise_multiplier=10.0)
    >>> normalization.adapt(x, noise_seed=0)
    >>> y = normalization(x).numpy()
    >>> np.abs(y.mean(axis=0)).max() < 0.2, np.abs(y.std(axis=0) - 1).max() < 0.2
    (np.True_, np.True_)
    >>> normalization.claim.proven.noise_multiplier
    10.0
    """

    def __init__(
        self,
        axis: int | Sequence[int] = -1,
        noise_multiplier: float = 10.0,
        scales: float | Sequence[float] | np.ndarray = 1.0,
        power: float = 1.0,
        l2_norm_clip: Sequence[float] | None = None,
        **kwargs: Any,
    ):
        super().__init__(noise_multiplier, **kwargs)
        self.axis = (int(axis),) if isinstance(axis, int) else tuple(map(int, axis))
        self.scales = np.asarray(scales, np.float32)
        if not (np.isfinite(self.scales).all() and (self.scales > 0).all()):
            raise ValueError(
                "Argument `scales` must be positive and finite. "
                f"Received: scales={scales}"
            )
        check_in("power", power, "[0, 1]")
        self.power = float(power)
        if l2_norm_clip is not None:
            if len(l2_norm_clip) != 2:
                raise ValueError(
                    "Argument `l2_norm_clip` must be two numbers, for means and for "
                    f"squares. Received: l2_norm_clip={l2_norm_clip}"
                )
            for clip in l2_norm_clip:
                check_l2_norm_clip("l2_norm_clip", clip)
            l2_norm_clip = tuple(map(float, l2_norm_clip))
        self.l2_norm_clip = l2_norm_clip

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        rank = len(input_shape)
        axes = {axis % rank for axis in self.axis if -rank <= axis < rank}
        if len(axes) != len(self.axis) or 0 in axes or not axes:
            raise ValueError(
                "Argument `axis` must name different axes of the inputs, and not the "
                f"first. Received: axis={self.axis} for input_shape={input_shape}"
            )
        self._reduced = tuple(axis for axis in range(1, rank) if axis not in axes)
        # Lined up with the inputs, without the batch.
        shape = tuple(input_shape[i] if i in axes else 1 for i in range(1, rank))
        if None in shape:
            raise ValueError(
                f"PrivateNormalization needs to know the size of axis {self.axis}. "
                f"Received: input_shape={input_shape}"
            )
        kept = tuple(input_shape[i] for i in sorted(axes))
        try:
            self._divisor = np.broadcast_to(self.scales, kept).reshape(shape)
        except ValueError:
            raise ValueError(
                f"Argument `scales` must have shape {kept}, that of axis {self.axis}, "
                f"or be one number. Received: scales of shape {self.scales.shape}"
            ) from None
        self.mean, self.deviation = (
            self.add_weight(
                shape=shape,
                initializer=start,
                trainable=False,
                name=name,
                dtype="float32",
            )
            for name, start in (("mean", "zeros"), ("deviation", "ones"))
        )
        self._add_account()
        self.built = True

    def adapt(
        self, data: np.ndarray | tf.data.Dataset, noise_seed: int | None = None
    ) -> None:
        """Finds means and deviations: one private release.

        Args:
            data: `[examples, ...]` array, or a finite `tf.data.Dataset` of batches
                in which no example occurs twice. If it yields tuples, their first
                entry is used, without the rows to which a third entry gives weight 0.
            noise_seed: `None` (default) takes the noise from the operating system's
                entropy. A number is for tests: who knows it can remove the noise. It
                is never saved.

        Raises:
            ValueError: If there is no data, or an example may occur in it twice.
        """
        rng = np.random.Generator(np.random.PCG64DXSM(noise_seed))
        multiplier, clips = self.noise_multiplier, self.l2_norm_clip
        if clips is None:
            histograms = sum(map(norm_histograms, self._moments(data)))
            self._check_any(histograms)
            noise = multiplier / math.sqrt(_CLIP_SHARE) * math.sqrt(2.0)
            noised = histograms + noise * rng.normal(size=np.shape(histograms))
            clips = tuple(_median(counts) for counts in noised)
            multiplier /= math.sqrt(1.0 - _CLIP_SHARE)
        sums = sum(bounded(moments, clips).sum(0) for moments in self._moments(data))
        self._check_any(sums)
        noise = multiplier * math.sqrt(2.0 + _WEIGHT**2)
        noised = sums + noise * rng.normal(size=np.shape(sums))
        # All that follows is made of what was released.
        total = max(noised[-1] / _WEIGHT, 1.0)
        first, second = np.split(noised[:-1] / total, 2)
        mean, square = clips[0] * first, clips[1] * second
        of_mean, of_square = (clip * noise / total for clip in clips)
        # The square of a noised mean is too large by the variance of its noise.
        variance = square - np.maximum(mean**2 - of_mean**2, 0.0)
        floor = _FLOOR * np.hypot(of_square, 2.0 * np.abs(mean) * of_mean)
        least = np.finfo(np.float32).tiny
        deviation = np.sqrt(np.maximum(variance, np.maximum(floor, least)))
        self.mean.assign(mean.reshape(self.mean.shape))
        self.deviation.assign(deviation.reshape(self.deviation.shape))
        self._count_release()

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        inputs = keras.ops.cast(inputs, "float32") / self._divisor
        shifted = inputs - keras.ops.convert_to_tensor(self.mean)
        deviation = keras.ops.convert_to_tensor(self.deviation)
        return keras.ops.cast(shifted / deviation**self.power, self.compute_dtype)

    def compute_output_shape(
        self, input_shape: tuple[int | None, ...]
    ) -> tuple[int | None, ...]:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "axis": list(self.axis),
            "scales": self.scales.tolist(),
            "power": self.power,
            "l2_norm_clip": self.l2_norm_clip and list(self.l2_norm_clip),
        }

    def _moments(self, data: Any) -> Iterable[np.ndarray]:
        """`[2, rows, entries]`: m and s of each example."""
        for batch in batches_of(data):
            if not self.built:
                self.build((None, *np.shape(batch)[1:]))
            with np.errstate(over="ignore", invalid="ignore"):
                scaled = np.asarray(batch, np.float64) / self._divisor
                yield np.stack(
                    [
                        part.mean(axis=self._reduced).reshape([len(part), -1])
                        for part in (scaled, scaled**2)
                    ]
                )

    def _check_any(self, sums: Any) -> None:
        if not np.ndim(sums):
            raise ValueError("Argument `data` must hold at least one example.")


def norm_histograms(moments: np.ndarray) -> np.ndarray:
    """`[2, bins]`: how many examples have a norm of m, and of s, in each bin.

    An example is in one bin of each at most: in none if it is not finite.
    """
    histograms = np.zeros([2, len(_GRID)])
    for histogram, norms in zip(histograms, _norms(moments), strict=True):
        finite = norms[np.isfinite(norms)]
        bins = np.minimum(np.searchsorted(_GRID, finite), len(_GRID) - 1)
        np.add.at(histogram, bins, 1.0)
    return histograms


def bounded(moments: np.ndarray, clips: Sequence[float]) -> np.ndarray:
    """`[rows, 2 entries + 1]` of norm at most sqrt(2 + 1/16), see the class."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        norms = _norms(moments)
        weights = np.minimum(1.0, (np.reshape(clips, [2, 1]) / norms).min(axis=0))
    valid = np.isfinite(norms).all(axis=0)
    # What is not finite must not be multiplied: 0 * inf is no number.
    weights = np.where(valid, weights, 0.0)[:, np.newaxis]
    m, s = np.where(valid[:, np.newaxis], moments, 0.0)
    return np.concatenate(
        [weights * m / clips[0], weights * s / clips[1], _WEIGHT * weights], axis=1
    )


def _norms(moments: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.sqrt(np.sum(moments**2, axis=-1))


def _median(counts: np.ndarray) -> float:
    """The point of the grid at which noised counts reach half of their sum."""
    reached = np.cumsum(counts) >= counts.sum() / 2
    return float(_GRID[np.argmax(reached)])
