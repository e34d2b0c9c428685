"""Public features: what a model is given in place of the raw inputs, computed once."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from keras_dp_ext.data.layers.scattering import Scattering
from keras_dp_ext.data.sets.data_set import DataSet
from keras_dp_ext.presets.drawn_digits import drawn_digits
from keras_dp_ext.presets.drawn_garments import drawn_garments
from keras_dp_ext.presets.random_scattering import RandomScattering
from keras_dp_ext.presets.whitening import within_class_whitening

_CHUNK = 128

# The greatest number of half precision.
_HALF = float(np.finfo(np.float16).max)

# Drawings of what is in a data set.
_DRAWN: dict[str, Callable[[int], tuple[np.ndarray, np.ndarray]]] = {
    "mnist": drawn_digits,
    "fashion_mnist": drawn_garments,
}
_DRAWINGS = 20_000
_COMPONENTS = 1500
_RIDGE = 0.01


def scattering(data: DataSet) -> DataSet:
    """Scattering coefficients of images, as they are.

    81 of them (243 for colours) at 7 x 7 (8 x 8) places for 28 x 28 (32 x 32)
    pixels. No image sees another one, and nothing is learned: no privacy is spent.

    References:
        [Tramer and Boneh, 2021](https://arxiv.org/abs/2011.11660)
    """
    return _extracted(data, [Scattering(scales=2, angles=8)], "scattering features")


def grouped_scattering(data: DataSet) -> DataSet:
    """Scattering coefficients, normalised within each image.

    To mean 0 and variance 1 in 27 groups of channels of one image.
    """
    return _extracted(
        data,
        [
            Scattering(scales=2, angles=8),
            keras.layers.GroupNormalization(
                groups=27, epsilon=1e-5, center=False, scale=False
            ),
        ],
        "scattering features",
    )


def drawn_scattering(data: DataSet) -> DataSet:
    """Grouped scattering, whitened by what differs among drawings of the same kind.

    `within_class_whitening` of unit-norm features, with drawings that a program makes of
    random numbers (`drawn_digits`, `drawn_garments`). Their labels are public, as is all
    that is learned from them.
    """
    if data.name not in _DRAWN:
        raise ValueError(f"there are drawings for {', '.join(_DRAWN)} only.")
    images, labels = _DRAWN[data.name](_DRAWINGS)
    if data.x_train.shape[1:] != images.shape[1:]:
        raise ValueError(f"drawings have shape {images.shape[1:]}.")
    test = images[:1], labels[:1]  # A data set has to have some.
    drawn = grouped_scattering(DataSet("drawings", images, labels, *test, 10))
    projection = within_class_whitening(
        _unit_rows(drawn.x_train), labels, _COMPONENTS, _RIDGE
    )
    made = grouped_scattering(data)
    return dataclasses.replace(
        made,
        x_train=_projected(made.x_train, projection),
        x_test=_projected(made.x_test, projection),
        note=f"{data.note}; scattering features whitened by drawings",
    )


def random_scattering(data: DataSet, mirror: bool) -> DataSet:
    """Random features of scattering coefficients (`RandomScattering`)."""
    layer = RandomScattering(mirror=mirror)
    return _extracted(data, [layer], "random scattering features")


def _random_scattering(data: DataSet) -> DataSet:
    # That a digit or a letter is another one in the mirror is public knowledge.
    return random_scattering(data, mirror=data.name not in ("mnist", "digits"))


#: Features of models that do not take raw inputs.
FEATURES: dict[str, Callable[[DataSet], DataSet]] = {
    "scatter_linear": grouped_scattering,
    "scatter_drawn": drawn_scattering,
    "scatter_normalized": scattering,
    "scatter_cnn": scattering,
    "scatter_random": _random_scattering,
}


def with_features(
    model: str, data: DataSet, cache_dir: str | os.PathLike | None = None
) -> DataSet:
    """The data set as a model takes it.

    Args:
        model: Name of the model; names without features of their own take the data as
            it is.
        data: The data set, with raw inputs.
        cache_dir: Where features are kept, so that the next training on the same data
            need not compute them again. They are as private as the data.

    Returns:
        The data set with the model's features as inputs.

    Raises:
        ValueError: If the features cannot be had of such data.
    """
    if model not in FEATURES:
        return data
    compute = functools.partial(FEATURES[model], data)
    try:
        if cache_dir is None:
            return compute()
        return _cached(compute, data, Path(cache_dir) / f"{_digest(model, data)}.npz")
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"Model `{model}` needs features that data set `{data.name}` with inputs "
            f"of shape {data.x_train.shape[1:]} does not have: {error}"
        ) from error


def _extracted(data: DataSet, layers: list[keras.layers.Layer], what: str) -> DataSet:
    extract = keras.Sequential(
        [
            keras.Input(data.x_train.shape[1:]),
            keras.layers.Rescaling(1.0 / data.scale),
            *layers,
        ]
    )
    return dataclasses.replace(
        data,
        x_train=_in_chunks(extract, data.x_train),
        x_test=_in_chunks(extract, data.x_test),
        scale=1.0,
        note=f"{data.note}; {what}",
    )


def _in_chunks(extract: keras.Model, inputs: np.ndarray) -> np.ndarray:
    """The features of all inputs in half precision, which halves the memory.

    They are finite, whatever the inputs: a data set that one example makes unusable
    would tell, by not being refused, that nobody has such an example.
    """

    @tf.function(jit_compile=True)  # A third of the time of single operations.
    def compiled(chunk: tf.Tensor) -> tf.Tensor:
        features = extract(chunk, training=False)
        features = tf.where(tf.math.is_nan(features), 0.0, features)
        return tf.cast(tf.clip_by_value(features, -_HALF, _HALF), tf.float16)

    features = np.empty((len(inputs), *extract.output_shape[1:]), np.float16)
    for start in range(0, len(inputs), _CHUNK):
        chunk = inputs[start : start + _CHUNK]
        # One size, one compilation: the last chunk is filled up.
        filled = np.zeros((_CHUNK, *inputs.shape[1:]), inputs.dtype)
        filled[: len(chunk)] = chunk
        features[start : start + len(chunk)] = compiled(filled)[: len(chunk)]
    return features


def _unit_rows(features: np.ndarray) -> np.ndarray:
    rows = features.reshape(len(features), -1).astype(np.float32)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(norms, np.finfo(np.float32).tiny)  # An image may be empty.


def _projected(features: np.ndarray, projection: np.ndarray) -> np.ndarray:
    projected = np.empty((len(features), projection.shape[1]), np.float16)
    for start in range(0, len(features), 2048):
        part = slice(start, start + 2048)
        projected[part] = _unit_rows(features[part]) @ projection
    return projected


def _digest(model: str, data: DataSet) -> str:
    """Tells features apart by the code and the inputs they are made of."""
    digest = hashlib.sha256(model.encode())
    folder = Path(__file__).parent
    made_in = ["features", "random_scattering", "dead_leaves"]
    made_in += ["whitening", "drawn_digits", "drawn_garments"]
    sources = [folder / f"{name}.py" for name in made_in]
    sources.append(Path(_source_of(Scattering)))
    for source in sources:
        digest.update(source.read_bytes())
    for array in (data.x_train, data.x_test):
        digest.update(f"{data.name} {array.shape} {array.dtype} {data.scale}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return f"{model}-{digest.hexdigest()[:24]}"


def _source_of(layer: type) -> str:
    import inspect

    return inspect.getsourcefile(layer) or ""


def _cached(compute: Callable[[], DataSet], data: DataSet, path: Path) -> DataSet:
    if not path.exists():
        made = compute()
        path.parent.mkdir(parents=True, exist_ok=True)
        # Under its own name only once it is complete.
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            np.savez(file, x_train=made.x_train, x_test=made.x_test, note=made.note)
        os.replace(file.name, path)
        return made
    with np.load(path, allow_pickle=False) as saved:
        return dataclasses.replace(
            data,
            x_train=saved["x_train"],
            x_test=saved["x_test"],
            scale=1.0,
            note=str(saved["note"]),
        )
