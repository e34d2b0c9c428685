"""Scattering equals its definition in space, and mixes no two images."""

import itertools
import math

import keras
import numpy as np
import pytest
import scipy.special

from keras_dp_ext.data import Scattering


def gaussian(extent, width, slant, angle):
    """Gaussian and its coordinate along the wave, on a grid of five periods."""
    reach = np.arange(-2 * extent, 3 * extent)
    down, right = np.meshgrid(reach, reach, indexing="ij")
    along = math.cos(angle) * right + math.sin(angle) * down
    across = math.cos(angle) * down - math.sin(angle) * right
    weight = np.exp(-(along**2 + (slant * across) ** 2) / (2 * width**2))
    return slant / (2 * math.pi * width**2) * weight, along


def periodic(kernel, extent):
    """Sums a kernel over its five by five periods."""
    blocks = kernel.reshape(5, extent, 5, extent)
    return blocks.sum(axis=(0, 2))


def wavelet(extent, scale, angle, slant):
    """The Morlet wavelet in space: exp(i xi u) minus what makes its mean zero."""
    weight, along = gaussian(extent, 0.8 * 2**scale, slant, angle)
    wave = periodic(weight * np.exp(0.75j * math.pi / 2**scale * along), extent)
    envelope = periodic(weight, extent)
    return wave - wave.sum() / envelope.sum() * envelope


def average(extent, scales):
    weight, _ = gaussian(extent, 0.8 * 2.0 ** (scales - 1), 1.0, 0.0)
    kernel = periodic(weight, extent)
    return kernel / kernel.sum()


def convolve(signal, kernel):
    """Periodic convolution, pixel by pixel."""
    result = np.zeros(signal.shape, np.result_type(signal, kernel))
    for row, column in itertools.product(*map(range, kernel.shape)):
        result += kernel[row, column] * np.roll(signal, (row, column), axis=(0, 1))
    return result


def reference(image, scales, angles):
    """`[height, width, paths]` of one square channel, straight from the definition."""
    stride = 2**scales
    extent = stride * (math.ceil(len(image) / stride) + 2)
    after = extent - len(image) - stride
    padded = np.pad(image, (stride, after), mode="reflect")
    slant = 4 / angles

    def modulus(signal, scale, resolution, angle):
        relative = scale - resolution
        kernel = wavelet(len(signal), relative, math.pi * angle / angles, slant)
        step = 2**relative
        return np.abs(convolve(signal, kernel))[::step, ::step]

    def smooth(signal, resolution):
        step = 2 ** (scales - resolution)
        blurred = convolve(signal, average(len(signal), scales - resolution))
        return blurred[step:-step:step, step:-step:step]

    every = range(angles)
    zeroth, first, second = [smooth(padded, 0)], [], []
    for j, a in itertools.product(range(scales), every):
        once = modulus(padded, j, 0, a)
        first.append(smooth(once, j))
        for k, b in itertools.product(range(j + 1, scales), every):
            second.append(smooth(modulus(once, k, j, b), k))
    return np.stack([*zeroth, *first, *second], axis=-1)


@pytest.mark.parametrize(
    ("size", "scales", "angles"), [(12, 2, 3), (10, 1, 8), (9, 3, 2)]
)
def test_scattering_is_its_definition(size, scales, angles):
    images = np.random.default_rng(0).random([2, size, size, 2])
    result = np.asarray(Scattering(scales, angles)(images))
    for image, features in zip(images, result, strict=True):
        expected = [reference(image[..., c], scales, angles) for c in range(2)]
        np.testing.assert_allclose(features, np.concatenate(expected, -1), atol=2e-5)


def test_the_features_of_an_image_do_not_depend_on_the_others():
    images = np.random.default_rng(1).random([5, 16, 16, 1]).astype("float32")
    layer = Scattering()
    changed = images.copy()
    changed[1:] = 1.0 - changed[1:]
    together = np.asarray(layer(images))[0]
    np.testing.assert_allclose(np.asarray(layer(changed))[0], together, atol=1e-6)
    np.testing.assert_allclose(np.asarray(layer(images[:1]))[0], together, atol=1e-6)


def test_a_flat_image_has_its_brightness_and_no_structure():
    features = np.asarray(Scattering()(np.full([1, 28, 28, 1], 0.7, np.float32)))
    assert features.shape == (1, 7, 7, 81)
    np.testing.assert_allclose(features[..., 0], 0.7, atol=1e-5)
    np.testing.assert_allclose(features[..., 1:], 0.0, atol=1e-5)


def test_a_wave_answers_at_its_own_angle():
    angle = 3 * math.pi / 8
    down, right = np.meshgrid(np.arange(32), np.arange(32), indexing="ij")
    along = math.cos(angle) * right + math.sin(angle) * down
    wave = np.cos(0.75 * math.pi / 2 * along)[np.newaxis, ..., np.newaxis]
    first_order = np.asarray(Scattering()(wave))[0, 4, 4, 1:17]
    assert first_order.argmax() == 8 + 3  # The coarser scale, the fourth angle.


def test_moving_an_image_by_a_pixel_moves_its_features_less_than_the_image():
    image = np.zeros([1, 28, 28, 1], np.float32)
    image[:, 8:20, 12:15] = 1.0
    moved = np.roll(image, 1, axis=2)
    layer = Scattering()
    before, after = np.asarray(layer(image)), np.asarray(layer(moved))
    relative = np.linalg.norm(after - before) / np.linalg.norm(before)
    assert relative < 0.5 * np.linalg.norm(moved - image) / np.linalg.norm(image)


def test_the_layer_is_saved_and_trains_nothing(tmp_path):
    model = keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            Scattering(scales=1, angles=4),
            keras.layers.Flatten(),
        ]
    )
    assert not model.weights
    model.save(tmp_path / "model.keras")
    images = np.random.default_rng(2).random([2, 16, 16, 3])
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(
        loaded.predict(images, verbose=0), model.predict(images, verbose=0)
    )


@pytest.mark.parametrize(
    ("arguments", "shape", "message"),
    [
        ({"scales": 0}, (16, 16, 1), "`scales` must be a positive integer"),
        ({"angles": 1.5}, (16, 16, 1), "`angles` must be a positive integer"),
        ({"scales": 3}, (8, 8, 1), "`scales` must be smaller"),
        ({}, (None, 16, 1), "known size"),
    ],
)
def test_what_cannot_be_scattered_is_refused(arguments, shape, message):
    with pytest.raises(ValueError, match=message):
        Scattering(**arguments)(keras.Input(shape))


@pytest.mark.parametrize(("scales", "angles", "size"), [(2, 8, 28), (3, 6, 32)])
def test_features_are_those_of_kymatio(scales, angles, size, monkeypatch):
    # Its transform of volumes needs what SciPy has dropped; that of images does not.
    if not hasattr(scipy.special, "sph_harm"):
        monkeypatch.setattr(scipy.special, "sph_harm", None, raising=False)
    kymatio = pytest.importorskip("kymatio.numpy")
    images = np.random.default_rng(0).random([2, size, size]).astype(np.float32)
    theirs = kymatio.Scattering2D(J=scales, shape=(size, size), L=angles)(images)
    ours = np.array(Scattering(scales, angles)(images[..., np.newaxis]))
    # Paths in the same order, but for the angle at which Kymatio begins.
    number = {path: index for index, path in enumerate(_paths(scales, angles))}
    later = [
        number[tuple((j, (angle + 1) % angles) for j, angle in path)] for path in number
    ]
    assert theirs.shape[1] == len(later) == ours.shape[-1]
    # It sums fewer periods of its filters.
    np.testing.assert_allclose(
        np.moveaxis(theirs, 1, -1), ours[..., later], atol=3e-4, rtol=0
    )


def _paths(scales, angles):
    """The wavelets of each feature: none, one, or two."""
    one = list(itertools.product(range(scales), range(angles)))
    two = ((a, b) for a in one for b in one if a[0] < b[0])
    return [(), *((a,) for a in one), *two]
