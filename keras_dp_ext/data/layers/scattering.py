"""Wavelet scattering: image features that are fixed beforehand and cost no privacy."""

from __future__ import annotations

import itertools
import math
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dp_ext._checks import check_count


@keras.saving.register_keras_serializable(package="keras_dp_ext")
class Scattering(keras.layers.Layer):
    """The scattering transform of images, up to second order.

    Wavelets psi of `scales` sizes 2**j and `angles` orientations, a modulus after
    each, and an average phi over 2**scales pixels at the end:

        S0 = x * phi
        S1 = |x * psi_1| * phi
        S2 = ||x * psi_1| * psi_2| * phi    where psi_2 is coarser than psi_1

    Nothing in it is learned, so it is public: each output depends on its own image
    only, and a private model on top of it needs few parameters and few steps. Its
    features are computed once (`keras.Sequential([Scattering()]).predict(images)`), or
    in the model.

    Filters are Morlet wavelets of frequency 3/4 pi / 2**j and width 0.8 * 2**j,
    twice as long across the wave for 8 angles, and a Gaussian of width
    0.8 * 2**(scales - 1). Images are extended by reflection. What is filtered by
    psi of scale j is kept at every 2**j-th pixel.

    Args:
        scales: Number of wavelet sizes, J. The output is smaller by 2**J.
        angles: Number of orientations, L.
        **kwargs: Arguments of `keras.layers.Layer`.

    Input: `[batch, height, width, channels]`, of any type; scale pixels to [0, 1]
    if the features are to be independent of their range.

    Output: `[batch, ceil(height / 2**J), ceil(width / 2**J), channels * paths]`, with
    `paths = 1 + J L + L**2 J (J - 1) / 2`, ordered by channel, order, scales and
    angles.

    Example:

    >>> Scattering()(np.zeros([2, 28, 28, 1])).shape
    TensorShape([2, 7, 7, 81])

    References:
        Bruna and Mallat, [Invariant scattering convolution
        networks](https://arxiv.org/abs/1203.1513), 2013; Tramer and Boneh,
        [Differentially private learning needs better
        features](https://arxiv.org/abs/2011.11660), 2021.
    """

    def __init__(self, scales: int = 2, angles: int = 8, **kwargs: Any):
        kwargs.setdefault("trainable", False)
        super().__init__(**kwargs)
        for name, value in (("scales", scales), ("angles", angles)):
            check_count(name, value)
        self.scales, self.angles = int(scales), int(angles)

    @property
    def paths(self) -> int:
        """Outputs for each input channel."""
        first = self.scales * self.angles
        return 1 + first + self.angles * first * (self.scales - 1) // 2

    def build(self, input_shape: tuple[int | None, ...]) -> None:
        if len(input_shape) != 4 or None in input_shape[1:]:
            raise ValueError(
                "Scattering needs inputs [batch, height, width, channels] of known "
                f"size. Received: input_shape={input_shape}"
            )
        stride = 2**self.scales
        if min(input_shape[1:3]) <= stride:
            raise ValueError(
                f"Argument `scales` must be smaller for images of "
                f"{input_shape[1]} x {input_shape[2]} pixels: they must be larger "
                f"than 2**scales. Received: scales={self.scales}"
            )
        self._extents = tuple(
            stride * (math.ceil(size / stride) + 2) for size in input_shape[1:3]
        )
        self.built = True

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        images = tf.transpose(tf.cast(inputs, tf.float32), [0, 3, 1, 2])
        stride = 2**self.scales
        for axis, extent in enumerate(self._extents, start=2):
            size = images.shape[axis]
            # Reflected as often as needed; `tf.pad` would do it once only.
            places = np.pad(
                np.arange(size), (stride, extent - size - stride), mode="reflect"
            )
            images = tf.gather(images, places, axis=axis)
        spectrum = _fourier(images)
        orders = [[self._average(images[:, :, tf.newaxis], 0)], [], []]
        for first in range(self.scales):
            # [batch, channels, angles, height, width] from here.
            once = self._filter(spectrum[:, :, tf.newaxis], first, 0)
            orders[1].append(self._average(once, first))
            if first + 1 == self.scales:
                break
            once_spectrum = _fourier(once)[:, :, :, tf.newaxis]
            twice = [
                self._average(self._filter(once_spectrum, second, first), second)
                for second in range(first + 1, self.scales)
            ]
            # One path of the first order after the other.
            orders[2].append(_merge_paths(tf.stack(twice, axis=3)))
        features = tf.concat([*orders[0], *orders[1], *orders[2]], axis=2)
        features = tf.transpose(_merge(features, 1), [0, 2, 3, 1])
        return tf.cast(features, self.compute_dtype)

    def compute_output_shape(
        self, input_shape: tuple[int | None, ...]
    ) -> tuple[int | None, ...]:
        batch, height, width, channels = input_shape
        stride = 2**self.scales
        return (
            batch,
            math.ceil(height / stride),
            math.ceil(width / stride),
            channels * self.paths,
        )

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "scales": self.scales, "angles": self.angles}

    def _filter(self, spectrum: tf.Tensor, scale: int, resolution: int) -> tf.Tensor:
        """|u * psi| for all angles, at every 2**scale-th pixel.

        Args:
            spectrum: Fourier transform of u, which has every 2**resolution-th pixel.
            scale: j of the wavelets.
            resolution: As above.
        """
        relative = scale - resolution
        height, width = (extent >> resolution for extent in self._extents)
        extents = height, width
        wavelets = np.stack(
            [
                morlet(
                    extents, relative, math.pi * angle / self.angles, 4 / self.angles
                )
                for angle in range(self.angles)
            ]
        )
        product = spectrum * tf.constant(wavelets, tf.complex64)
        return tf.abs(tf.signal.ifft2d(_fold(product, 2**relative)))

    def _average(self, signal: tf.Tensor, resolution: int) -> tf.Tensor:
        """u * phi at every 2**scales-th pixel, without the reflected margin."""
        rows, columns = (
            tf.constant(
                averaging_matrix(extent >> resolution, self.scales - resolution),
                tf.float32,
            )
            for extent in self._extents
        )
        return rows @ signal @ tf.transpose(columns)


def morlet(
    extents: tuple[int, int], scale: int, angle: float, slant: float
) -> np.ndarray:
    """The Fourier transform of a Morlet wavelet on a periodic grid; real.

    A wave under a Gaussian, from which so much of the Gaussian is taken that the
    mean is zero.

    Args:
        extents: Height and width of the grid.
        scale: j; frequency 3/4 pi / 2**j, width 0.8 * 2**j.
        angle: Direction of the wave.
        slant: Width along the wave over width across it.
    """
    frequency, width = 0.75 * math.pi / 2**scale, 0.8 * 2**scale

    def gaussian(centre: float) -> np.ndarray:
        """A Gaussian along the wave's axis, summed over the periods of the Fourier plane."""
        total = np.zeros(extents)
        rows, columns = (2 * math.pi * np.fft.fftfreq(n) for n in extents)
        for period in itertools.product(2 * math.pi * np.arange(-2, 3), repeat=2):
            down, right = np.meshgrid(
                rows + period[0], columns + period[1], indexing="ij"
            )
            along = math.cos(angle) * right + math.sin(angle) * down - centre
            across = math.cos(angle) * down - math.sin(angle) * right
            total += np.exp(-0.5 * width**2 * (along**2 + (across / slant) ** 2))
        return total

    wave, envelope = gaussian(frequency), gaussian(0.0)
    return wave - wave[0, 0] / envelope[0, 0] * envelope


def averaging_matrix(extent: int, scales: int) -> np.ndarray:
    """`[kept, extent]`: a periodic Gaussian average at every 2**scales-th pixel.

    The first and the last row, which lie in the margin, are left out.
    """
    stride, width = 2**scales, 0.8 * 2.0 ** (scales - 1)
    frequencies = 2 * math.pi * np.fft.fftfreq(extent)
    periods = 2 * math.pi * np.arange(-4, 5)[:, np.newaxis]
    response = np.exp(-0.5 * (width * (frequencies + periods)) ** 2).sum(axis=0)
    kernel = np.fft.ifft(response / response[0]).real
    kept = np.arange(stride, extent - stride, stride)[:, np.newaxis]
    return kernel[(kept - np.arange(extent)) % extent]


def _fourier(signal: tf.Tensor) -> tf.Tensor:
    return tf.signal.fft2d(tf.cast(signal, tf.complex64))


def _fold(spectrum: tf.Tensor, factor: int) -> tf.Tensor:
    """The spectrum of every `factor`-th pixel: the mean over what aliases."""
    if factor == 1:
        return spectrum
    *leading, height, width = spectrum.shape
    leading[0] = -1
    height, width = height // factor, width // factor
    blocks = tf.reshape(spectrum, [*leading, factor, height, factor, width])
    return tf.reduce_mean(blocks, axis=[-4, -2])


def _merge(tensor: tf.Tensor, axis: int) -> tf.Tensor:
    """Merges an axis with the next one."""
    shape = [-1, *tensor.shape[1:]]
    shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
    return tf.reshape(tensor, shape)


def _merge_paths(tensor: tf.Tensor) -> tf.Tensor:
    """[batch, channels, angles, scales, angles, h, w]: all paths in one axis."""
    return _merge(_merge(tensor, 2), 2)
