"""Private principal components of the inputs, as a Keras preprocessing layer."""

from __future__ import annotations

import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dp_ext._checks import check_count, check_in
from keras_dp_ext.accounting.sampling import FullBatch, Poisson, Sampling
from keras_dp_ext.data.layers.privately_adapted import (
    ID_WORDS,
    PrivatelyAdapted,
    batches_of,
)


@keras.saving.register_keras_serializable(package="keras_dp_ext")
class PrivatePCA(PrivatelyAdapted):
    """Projects flattened inputs onto private principal components.

    `adapt` scales every row to norm 1, so that one row x changes the matrix
    A = sum x x^T by a matrix of Frobenius norm 1, adds symmetric Gaussian noise to
    A, and keeps the leading eigenvectors of the result. That is one release. It enters
    the ledger of every model that has the layer, or whose pipeline uses it in `map`, by
    itself. Where an array is projected beforehand, nobody can see it: call
    `optimizer.ledger.add(release)` for each of its `privacy_releases()`.

    The noise has standard deviation `noise_multiplier` on the diagonal and
    `noise_multiplier / sqrt(2)` off it. A symmetric matrix holds each off-diagonal
    entry twice, so in coordinates in which the Frobenius norm is Euclidean (the
    diagonal, and sqrt(2) times the upper triangle) this is noise of standard deviation
    `noise_multiplier` in each: the Gaussian mechanism with sensitivity 1, for less
    noise than `noise_multiplier` on every entry.

    Inputs are projected as they are, after scaling each to norm 1 if `unit_norm` is
    set. The components do not change in training.

    Args:
        num_components: Number of components kept.
        noise_multiplier: Standard deviation of the noise relative to the sensitivity.
            Zero gives ordinary PCA without privacy, for comparison.
        sampling_rate: Probability with which `adapt` uses each row, at most 1. With a
            rate below 1 the rows are Poisson sampled.
        unit_norm: Whether `call` scales its inputs to norm 1, as `adapt` does.
        whitening: Component k is divided by (eigenvalue k)**whitening, at the same
            total energy: 0 leaves the components orthonormal, 1/2 gives all of them
            the same variance. The eigenvalues are those of the noised matrix, so this
            costs nothing.
        **kwargs: Arguments of `keras.layers.Layer`.

    Example:

    >>> x = np.random.default_rng(0).normal(size=[500, 8, 8]).astype("float32")
    >>> pca = PrivatePCA(num_components=5, noise_multiplier=4.0)
    >>> pca.adapt(x)
    >>> pca(x).shape
    TensorShape([500, 5])
    >>> pca.claim.proven.noise_multiplier
    4.0

    References:
        [Abadi et al., 2016](https://arxiv.org/abs/1607.00133), Section 4;
        [Dwork et al., 2014](https://doi.org/10.1145/2591796.2591883)
    """

    def __init__(
        self,
        num_components: int = 60,
        noise_multiplier: float = 7.0,
        sampling_rate: float = 1.0,
        unit_norm: bool = True,
        whitening: float = 0.0,
        **kwargs: Any,
    ):
        super().__init__(noise_multiplier, **kwargs)
        check_count("num_components", num_components)
        check_in("sampling_rate", sampling_rate, "(0, 1]")
        check_in("whitening", whitening, "[0, 0.5]")
        self.num_components = int(num_components)
        self._sampling_rate = float(sampling_rate)
        self.unit_norm = bool(unit_norm)
        self.whitening = float(whitening)

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        features = math.prod(input_shape[1:])
        if self.num_components > features:
            raise ValueError(
                "Argument `num_components` must be at most the number of features "
                f"({features}). Received: num_components={self.num_components}"
            )
        self.components = self.add_weight(
            shape=(features, self.num_components),
            initializer="zeros",
            trainable=False,
            name="components",
        )
        self._add_account()
        self.built = True

    @property
    def sampling_rate(self) -> float:
        """The share of the rows that `adapt` uses. Fixed, as the claim needs it."""
        return self._sampling_rate

    @property
    def sampling(self) -> Sampling:
        """How `adapt` chooses its rows."""
        if self.sampling_rate == 1.0:
            return FullBatch()
        return Poisson(self.sampling_rate)

    def load_own_variables(self, store: Any) -> None:
        saved = {key: store[key] for key in store.keys()}  # noqa: SIM118 (h5py)
        # Files of the first version have no id.
        saved.setdefault("2", np.zeros([ID_WORDS], np.int32))
        super().load_own_variables(saved)

    def adapt(
        self, data: np.ndarray | tf.data.Dataset, noise_seed: int | None = None
    ) -> None:
        """Computes the components: one private release.

        Args:
            data: `[examples, ...]` array, or a finite `tf.data.Dataset` of batches
                in which no example occurs twice. If it yields tuples, their first
                entry is used, without the rows to which a third entry gives weight 0.
            noise_seed: `None` (default) takes noise and sample from the operating
                system's entropy. A number is for tests: who knows it can remove
                the noise. It is never saved.

        Raises:
            ValueError: If there is no data, or an example may occur in it twice.
        """
        rng = np.random.Generator(np.random.PCG64DXSM(noise_seed))
        gram = None
        for batch in batches_of(data):
            if not self.built:
                self.build((None, *batch.shape[1:]))
            rows = unit_rows(batch)
            if self.sampling_rate < 1.0:
                rows = rows[rng.random(len(rows)) < self.sampling_rate]
            gram = rows.T @ rows + (0.0 if gram is None else gram)
        if gram is None:
            raise ValueError("Argument `data` must hold at least one example.")
        noised = gram + self.noise_multiplier * symmetric_noise(len(gram), rng)
        self.components.assign(
            leading_components(noised, self.num_components, self.whitening)
        )
        self._count_release()

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        flat = keras.ops.reshape(
            keras.ops.cast(inputs, self.compute_dtype),
            (-1, self.components.shape[0]),
        )
        if self.unit_norm:
            flat = keras.ops.normalize(flat, axis=-1, epsilon=1e-6)
        return keras.ops.matmul(flat, self.components)

    def compute_output_shape(
        self, input_shape: tuple[int | None, ...]
    ) -> tuple[int | None, ...]:
        return (input_shape[0], self.num_components)

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "num_components": self.num_components,
            "sampling_rate": self.sampling_rate,
            "unit_norm": self.unit_norm,
            "whitening": self.whitening,
        }


def unit_rows(batch: np.ndarray) -> np.ndarray:
    """`[rows, features]` in float64, each row of norm at most 1.

    Rows that are zero, or not finite, become zero: their norm must not matter.
    """
    rows = np.asarray(batch, np.float64).reshape([len(batch), -1])
    # Dividing by the largest entry first keeps the squares from overflowing.
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        rows = rows / np.max(np.abs(rows), axis=1, keepdims=True)
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)


def symmetric_noise(size: int, rng: np.random.Generator) -> np.ndarray:
    """Noise of standard deviation 1 in Frobenius-isometric coordinates."""
    upper = np.triu(rng.normal(size=[size, size]), k=1) / math.sqrt(2.0)
    return upper + upper.T + np.diag(rng.normal(size=size))


def leading_components(
    matrix: np.ndarray, num_components: int, whitening: float
) -> np.ndarray:
    """The leading eigenvectors as columns, scaled as `PrivatePCA` says."""
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1][:num_components], vectors[:, ::-1]
    # Noise may make the least eigenvalues negative, and nothing of them is known.
    values = np.maximum(values, 1e-4 * abs(values[0]))
    scales = values**-whitening
    scales *= np.sqrt(values.sum() / np.sum(values * scales**2))
    return vectors[:, :num_components] * scales
