"""Buffered linear Toeplitz strategies: long correlations from a few buffers."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import signal, special

from keras_dp_ext._checks import check_count, check_in
from keras_dp_ext.noise import uniform
from keras_dp_ext.noise.correlated import toeplitz
from keras_dp_ext.noise.correlated.base import (
    CorrelatedNoise,
    standard_normal,
)

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class BufferedToeplitz(CorrelatedNoise):
    """Noise of buffered linear Toeplitz matrices (BLT).

    C has ones on its diagonal and `sum_i weights_i * decays_i^(t - 1)` t places below it.
    The memory is one copy of the model for each buffer, however long noise is remembered.
    C is not banded: no amplification is proven. Train on `dp.data.fixed_order_batches`.

    Args:
        buffers: How many decaying sums of past noise are kept; 2 to 5 are enough.
        steps: Number of releases for which they are optimised.
        separation: Every how many releases an example takes part, for which they are
            optimised: the releases of one pass over the data. `None`: it takes part once.
        scale: Standard deviation of the independent draws.
        momentum: Of the optimizer, for which they are optimised.
        decays: Of the buffers, between 0 and 1, if they are not to be optimised.
        weights: Of the buffers, not negative, of sum at most 1; given with `decays`.

    Example:

    >>> noise = BufferedToeplitz(buffers=2, steps=500)
    >>> noise.matrix(4)[:, 0].round(2)
    array([1.  , 0.45, 0.39, 0.34])

    References:

    - McMahan, Xu, Zhang (2024), "A Hassle-free Algorithm for Strong Differential Privacy
      in Federated Learning Systems", 2408.08868: several participations.
    - Dvijotham, McMahan, Pillutla, Steinke, Thakurta (2024), "Efficient and Near-Optimal
      Noise Generation for Streaming Differential Privacy", 2404.16706.
    """

    name = "buffered-toeplitz"

    buffers: int = 3
    steps: int = 1000
    separation: int | None = None
    scale: float = 1.0
    momentum: float = 0.0
    decays: Any = dataclasses.field(default=None, repr=False)
    weights: Any = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("buffers", self.buffers)
        check_count("steps", self.steps)
        check_in("momentum", self.momentum, "[0, 1)")
        if self.separation is not None:
            check_count("separation", self.separation)
        decays, weights = self.decays, self.weights
        if decays is None and weights is None:
            decays, weights = best_buffers(
                self.buffers, self.steps, self.separation, self.momentum
            )
        for name, values in (("decays", decays), ("weights", weights)):
            array = np.asarray(values if values is not None else [], np.float64)
            inside = np.all(np.isfinite(array) & (array >= 0) & (array <= 1))
            if array.shape != (self.buffers,) or not inside:
                raise ValueError(
                    f"Argument `{name}` must be {self.buffers} numbers in [0, 1]. "
                    f"Received: {name}={values}"
                )
            object.__setattr__(self, name, tuple(array.tolist()))

    def _fraction(self) -> tuple[np.ndarray, np.ndarray]:
        """C as a fraction of polynomials: 1 + sum_i weights_i x / (1 - decays_i x)."""
        below = np.ones(1)
        for decay in self.decays:
            below = np.convolve(below, [1.0, -decay])
        above = below.copy()
        for index, weight in enumerate(self.weights):
            rest = np.ones(1)
            for other, decay in enumerate(self.decays):
                if other != index:
                    rest = np.convolve(rest, [1.0, -decay])
            above[1 : 1 + len(rest)] += weight * rest
        return above, below

    def encode(self, x: np.ndarray) -> np.ndarray:
        # One buffer after the other: sums of positive numbers lose no digits.
        result = np.array(x, np.float64)
        for decay, weight in zip(self.decays, self.weights, strict=True):
            result += weight * signal.lfilter([0.0, 1.0], [1.0, -decay], x, axis=0)
        return result

    def noise_from(self, z: np.ndarray) -> np.ndarray:
        above, below = self._fraction()
        return signal.lfilter(below, above, z, axis=0)

    def make_memory(self, size: int, add_variable: Callable[..., Any]) -> list[Any]:
        return [
            add_variable(
                shape=(self.buffers, size),
                dtype=uniform.float_dtype().name,
                name="noise_buffers",
                initializer="zeros",
                saved=False,
            )
        ]

    def _buffers(self, step: tf.Tensor, memory: Sequence[Any]) -> tf.Tensor:
        """Empty at the beginning of a run."""
        import tensorflow as tf

        buffers = tf.convert_to_tensor(memory[0])
        return tf.where(step > 0, buffers, tf.zeros_like(buffers))

    def draw(
        self, size: int, seed: tf.Tensor, step: tf.Tensor, memory: Sequence[Any]
    ) -> tf.Tensor:
        import tensorflow as tf

        weights = tf.constant(self.weights, uniform.float_dtype())
        past = tf.linalg.matvec(self._buffers(step, memory), weights, transpose_a=True)
        return self.scale * (standard_normal(size, seed) - past)

    def remember(
        self, drawn: tf.Tensor, seed: tf.Tensor, step: tf.Tensor, memory: Sequence[Any]
    ) -> None:
        import tensorflow as tf

        decays = tf.constant(self.decays, drawn.dtype)[:, tf.newaxis]
        memory[0].assign(decays * self._buffers(step, memory) + drawn / self.scale)


@functools.lru_cache(maxsize=64)
def best_buffers(
    buffers: int, steps: int, separation: int | None, momentum: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Decays and weights with the least error."""
    lags = np.arange(steps - 1)

    def split(parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        decays = special.expit(parameters[:buffers])
        shares = special.softmax(np.append(parameters[buffers:], 0.0))[:-1]
        return decays, shares

    def family(parameters: np.ndarray) -> tuple[np.ndarray, Callable]:
        decays, weights = split(parameters)
        powers = decays[:, np.newaxis] ** lags
        values = np.concatenate([[1.0], weights @ powers])

        def pull_back(gradient: np.ndarray) -> np.ndarray:
            tail = gradient[1:]
            by_weight = powers @ tail
            slopes = lags * decays[:, np.newaxis] ** np.maximum(lags - 1, 0)
            by_decay = weights * (slopes @ tail) * decays * (1 - decays)
            by_share = weights * (by_weight - weights @ by_weight)
            return np.concatenate([by_decay, by_share])

        return values, pull_back

    times = np.geomspace(2.0, max(4.0, steps), buffers + 1)[:-1]
    start = np.concatenate([special.logit(1 - 1 / times), np.zeros(buffers)])
    start[buffers:] -= np.arange(buffers)
    limits = [(-8.0, 16.0)] * buffers + [(-16.0, 8.0)] * buffers
    found = toeplitz.best_coefficients(
        family, start, limits, steps, momentum, separation
    )
    decays, weights = split(found)
    return tuple(decays.tolist()), tuple(weights.tolist())
