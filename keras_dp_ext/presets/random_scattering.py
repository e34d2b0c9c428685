"""Random features of scattering coefficients, whitened by what synthetic images show."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dp_ext.data.layers.scattering import Scattering
from keras_dp_ext.presets.dead_leaves import dead_leaves

_ANGLES = 8

# Images from which means, deviations and components are learned.
_SYNTHETIC = 768


class RandomScattering(keras.layers.Layer):
    """ReLU of random projections of scattering coefficients, averaged over 2 x 2 places.

    A linear model of scattering coefficients ends near 67% on CIFAR-10. Products of
    coefficients tell more, and random ReLU features hold them without anything that is
    learned from the data. Before the projection coefficients are shifted, scaled and
    partly whitened with statistics of synthetic images (`dead_leaves`): public
    numbers. So the layer costs no privacy, and what is learned privately is linear.

    With `mirror` the features of an image and of its mirror image are added, and the
    half of the places that holds them twice is left out: half of the parameters, and
    a model that is blind to what mirroring changes. The mirror image of scattering
    coefficients is taken to be the coefficients from right to left, with every angle
    turned about.

    Args:
        features: Number of random features at each place.
        components: Principal components that are projected.
        whitening: Component k is divided by (eigenvalue k)**whitening.
        threshold: What is subtracted before the ReLU, of projections of deviation 1.
        mirror: Whether mirror images are to look the same.
        seed: Of projections and synthetic images.
        **kwargs: Arguments of `keras.layers.Layer`.

    Example:

    >>> RandomScattering(features=10)(np.zeros([2, 32, 32, 3], "float32")).shape
    TensorShape([2, 4, 2, 10])
    """

    def __init__(
        self,
        features: int = 800,
        components: int = 60,
        whitening: float = 0.2,
        threshold: float = 0.25,
        mirror: bool = True,
        seed: int = 0,
        **kwargs: Any,
    ):
        kwargs.setdefault("trainable", False)
        super().__init__(**kwargs)
        self.features, self.components = features, components
        self.whitening, self.threshold = whitening, threshold
        self.mirror, self.seed = mirror, seed

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        self._scattering = Scattering(scales=2, angles=_ANGLES)
        self._scattering.build(input_shape)
        height, width, channels = (size or 0 for size in input_shape[1:])
        images = dead_leaves(_SYNTHETIC, height, width, channels, self.seed)
        scatter = tf.function(self._scattering, jit_compile=True)
        with tf.init_scope():
            parts = [scatter(part).numpy() for part in np.split(images, 12)]
        paths = parts[0].shape[-1]
        rows = np.concatenate(parts).reshape([-1, paths]).astype(np.float64)
        mean, deviation = rows.mean(axis=0), rows.std(axis=0)
        rows = (rows - mean) / deviation
        values, vectors = np.linalg.eigh(rows.T @ rows / len(rows))
        kept = min(self.components, paths)
        values, vectors = values[::-1][:kept], vectors[:, ::-1][:, :kept]
        # Signs of eigenvectors are arbitrary; other libraries may choose others.
        vectors = vectors * np.sign(
            vectors[np.abs(vectors).argmax(axis=0), range(kept)]
        )
        scaled = vectors * values**-self.whitening
        # Projections of synthetic images have deviation 1.
        scaled /= np.sqrt(np.sum(values ** (1 - 2 * self.whitening)))
        whitened = scaled / deviation[:, np.newaxis]
        self._components = whitened.astype(np.float32)
        self._mean = (mean @ whitened).astype(np.float32)
        random = np.random.default_rng(self.seed).normal(size=[kept, self.features])
        self._projection = random.astype(np.float32)
        # The angle a becomes -a; channels are ordered by colour, order and angles.
        turned = -np.arange(_ANGLES) % _ANGLES
        once = [1 + scale * _ANGLES + turned for scale in range(2)]
        twice = 1 + 2 * _ANGLES + (_ANGLES * turned[:, np.newaxis] + turned).ravel()
        mirrored = np.concatenate([[0], *once, twice])
        colours = len(mirrored) * np.arange(channels)[:, np.newaxis]
        self._mirrored = self._components[np.argsort((colours + mirrored).ravel())]
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.features_of(tf.cast(self._scattering(inputs), tf.float32))

    def features_of(self, coefficients: tf.Tensor) -> tf.Tensor:
        """The features of scattering coefficients."""
        features = self._random_features(coefficients, self._components)
        if self.mirror:
            flipped = tf.reverse(coefficients, axis=[2])
            features += self._random_features(flipped, self._mirrored)
            features = features[:, :, : (features.shape[2] + 1) // 2]
        return features

    def compute_output_shape(
        self, input_shape: tuple[int | None, ...]
    ) -> tuple[int | None, ...]:
        batch, height, width, _ = Scattering().compute_output_shape(input_shape)
        height, width = -(-height // 2), -(-width // 2)
        if self.mirror:
            width = (width + 1) // 2
        return batch, height, width, self.features

    def get_config(self) -> dict[str, Any]:
        names = ("features", "components", "whitening", "threshold", "mirror", "seed")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}

    def _random_features(self, coefficients: tf.Tensor, components: Any) -> tf.Tensor:
        whitened = tf.matmul(coefficients, components) - self._mean
        activations = tf.nn.relu(tf.matmul(whitened, self._projection) - self.threshold)
        return tf.nn.avg_pool2d(activations, 2, 2, "SAME")
