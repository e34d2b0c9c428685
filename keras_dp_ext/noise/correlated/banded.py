"""Banded strategies: the ones whose sampling amplifies."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import signal

from keras_dp_ext._checks import check_count, check_in
from keras_dp_ext.noise import uniform
from keras_dp_ext.noise.correlated import toeplitz
from keras_dp_ext.noise.correlated.base import (
    CorrelatedNoise,
    get_row,
    set_row,
    standard_normal,
)

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Banded(CorrelatedNoise):
    """Noise of banded matrix factorisation (BandMF), with Toeplitz bands.

    Train on `dp.data.cyclic_poisson_batches(..., cycle=bands)`, which is amplified, or on
    `dp.data.fixed_order_batches`, which needs no random sampling at all.

    The memory holds the noise of the last `bands - 1` releases: as many copies of the
    model. `BandedInverse` and `TreeAggregation` draw past noise again instead.

    Args:
        bands: Releases over which noise is correlated; 1 is independent noise. At most
            the cycle of the data. More bands cancel more noise, and leave less
            amplification: between 4 and 64 mostly, fewer for small epsilon.
        steps: Number of releases for which the bands are optimised. Any other number is
            as private and a little less accurate.
        scale: Standard deviation, relative to the sensitivity of one participation: with
            rows of norm 1 and one participation, the noise multiplier.
        momentum: Of the optimizer, for which the bands are optimised.
        coefficients: The bands themselves, if they are not to be optimised; not negative.
            They are scaled to norm 1.

    Example:

    >>> noise = Banded(bands=3, steps=100)
    >>> noise.matrix(4).round(2)
    array([[0.72, 0.  , 0.  , 0.  ],
           [0.53, 0.72, 0.  , 0.  ],
           [0.45, 0.53, 0.72, 0.  ],
           [0.  , 0.45, 0.53, 0.72]])

    References:

    - Choquette-Choo, Ganesh, McKenna, McMahan, Rush, Thakurta, Xu (2023), "(Amplified)
      Banded Matrix Factorization: A unified approach to private training", 2306.08153.
    - McKenna (2024), "Scaling up the banded matrix factorization mechanism for large scale
      differentially private ML", 2405.15913: Toeplitz bands.
    """

    name = "banded"

    bands: int = 16
    steps: int = 1000
    scale: float = 1.0
    momentum: float = 0.0
    coefficients: Any = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("bands", self.bands)
        check_count("steps", self.steps)
        check_in("momentum", self.momentum, "[0, 1)")
        coefficients = self.coefficients
        if coefficients is None:
            coefficients = best_bands(self.bands, self.steps, self.momentum)
        values = checked_coefficients(coefficients, self.bands)
        norm = np.linalg.norm(values)
        if (
            abs(norm - 1.0) > 1e-12
        ):  # Else it is one that was serialised: keep each bit.
            values = values / norm
        object.__setattr__(self, "coefficients", tuple(values.tolist()))

    @property
    def strategy_bands(self) -> int | None:
        return self.bands

    def encode(self, x: np.ndarray) -> np.ndarray:
        return signal.lfilter(self.coefficients, [1.0], x, axis=0)

    def noise_from(self, z: np.ndarray) -> np.ndarray:
        return signal.lfilter([1.0], self.coefficients, z, axis=0)

    def make_memory(self, size: int, add_variable: Callable[..., Any]) -> list[Any]:
        if self.bands == 1:
            return []
        return [
            add_variable(
                shape=(self.bands - 1, size),
                dtype=uniform.float_dtype().name,
                name="past_noise",
                initializer="zeros",
                saved=False,
            )
        ]

    def draw(
        self, size: int, seed: tf.Tensor, step: tf.Tensor, memory: Sequence[Any]
    ) -> tf.Tensor:
        import tensorflow as tf

        noise = standard_normal(size, seed)
        if memory:
            weights = tf.constant(self.coefficients, uniform.float_dtype())

            # One row at a time: all of them side by side would be copies of the model.
            def subtract(
                ago: tf.Tensor, rest: tf.Tensor
            ) -> tuple[tf.Tensor, tf.Tensor]:
                row = get_row(memory[0], (step - ago) % (self.bands - 1))
                return ago + 1, rest - tf.gather(weights, ago) * row

            # Not beyond the run: what a former one has left must not count.
            last = tf.minimum(step, self.bands - 1)
            _, noise = tf.while_loop(
                lambda ago, rest: ago <= last,
                subtract,
                (tf.constant(1, tf.int64), noise),
                maximum_iterations=self.bands - 1,
            )
        return self.scale / self.coefficients[0] * noise

    def remember(
        self, drawn: tf.Tensor, seed: tf.Tensor, step: tf.Tensor, memory: Sequence[Any]
    ) -> None:
        if memory:
            set_row(memory[0], step % (self.bands - 1), drawn / self.scale)


@functools.lru_cache(maxsize=64)
def best_bands(bands: int, steps: int, momentum: float) -> tuple[float, ...]:
    """The bands with the least error, where participations are as far apart."""
    bands = min(bands, steps)
    if bands == 1:
        return (1.0,)

    def family(ratios: np.ndarray) -> tuple[np.ndarray, Callable]:
        values = np.concatenate([[1.0], np.cumprod(ratios)])

        def pull_back(gradient: np.ndarray) -> np.ndarray:
            weighted = (gradient * values)[1:]
            return np.cumsum(weighted[::-1])[::-1] / ratios

        return values, pull_back

    start = 1.0 - 0.5 / np.arange(1, bands)
    # Ratios of at most 1: bands that fall.
    limits = [(1e-3, 1.0)] * (bands - 1)
    ratios = toeplitz.best_coefficients(family, start, limits, steps, momentum, None)
    return tuple(family(ratios)[0].tolist())


def checked_coefficients(coefficients: Any, count: int) -> np.ndarray:
    """The coefficients of a series that has an inverse, and none below 0."""
    values = np.asarray(coefficients, np.float64)
    if (
        values.ndim != 1
        or not 1 <= len(values) <= count
        or not np.all(np.isfinite(values))
        or np.any(values < 0)
        or values[0] <= 0
    ):
        # With a negative one, the worst gradients of an example need not point the
        # same way each time, and the sensitivity would be another.
        raise ValueError(
            f"Argument `coefficients` must be at most {count} numbers, the first "
            "positive and none negative. "
            f"Received: coefficients={coefficients}"
        )
    return np.pad(values, (0, count - len(values)))
