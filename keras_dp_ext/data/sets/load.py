"""Data sets by name: embedded, from `.npz` files, or through TensorFlow Datasets."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from keras_dp_ext._data_set_names import NAMES as NAMES
from keras_dp_ext._data_set_names import check_name
from keras_dp_ext.data.sets.data_set import DataSet
from keras_dp_ext.data.sets.table import is_frame, load_frame, load_table

KEYS = ("x_train", "y_train", "x_test", "y_test")
DATA_DIR_VARIABLE = "KERAS_DP_DATA"


@dataclasses.dataclass(frozen=True)
class _Source:
    """Where a data set is found, and what its numbers mean."""

    num_classes: int
    #: File names in the data directory, the first that exists is taken, with what
    #: must be said about it.
    files: Mapping[str, str]
    tfds_name: str | None = None
    scale: float = 1.0
    #: Turns the inputs that TensorFlow Datasets yields into an array.
    decode: Callable[[np.ndarray], np.ndarray] = np.asarray


def _images(name: str, tfds_name: str | None = None, **other_files: str) -> _Source:
    return _Source(
        num_classes=10,
        files={f"{name}.npz": "", **other_files},
        tfds_name=tfds_name or name,
        scale=255.0,
    )


def hash_words(texts: np.ndarray) -> np.ndarray:
    """`[texts, 1024]` word numbers from 1 to 9,999 by hashing; 0 is padding.

    A vocabulary counted on the reviews would be a statistic of private data,
    released without noise; a hash is not. Few reviews have more than 1,024 words.
    """
    tokens = np.zeros([len(texts), 1024], np.int32)
    for row, text in zip(tokens, texts, strict=True):
        clean = text.decode("utf-8", "replace").lower().replace("<br />", " ")
        words = re.findall(r"[a-z]+(?:'[a-z]+)?|[!?]", clean)[: len(row)]
        row[: len(words)] = [1 + zlib.crc32(word.encode()) % 9_999 for word in words]
    return tokens


_SOURCES: dict[str, _Source] = {
    "mnist": _images("mnist"),
    "fashion_mnist": _images("fashion_mnist"),
    "cifar10": _images(
        "cifar10",
        **{"cifar10_subset.npz": "a subset of CIFAR-10, not the complete data set"},
    ),
    "svhn_cropped": _images("svhn_cropped"),
    "adult": _Source(num_classes=2, files={"adult.npz": ""}),
    "imdb": _Source(
        num_classes=2,
        files={
            "imdb.npz": "",
            "imdb_tokens.npz": (
                "a subset of the test reviews; the vocabulary was counted on the "
                "training reviews, which epsilon does not cover"
            ),
        },
        tfds_name="imdb_reviews",
        decode=hash_words,
    ),
}


def load(
    name: Any,
    data_dir: str | os.PathLike | None = None,
    target: str | None = None,
    user_column: str | None = None,
) -> DataSet:
    """Loads a data set.

    Looks for `<data_dir>/<name>.npz` first (arrays `x_train`, `y_train`, `x_test`
    and `y_test`), then asks TensorFlow Datasets, which downloads it if it can.

    Args:
        name: `"digits"` (embedded: 1,797 digits of 8 x 8 pixels), `"mnist"`,
            `"fashion_mnist"`, `"cifar10"`, `"svhn_cropped"`, `"adult"`, `"imdb"`, or
            the path of a `.csv` file of your own, or a data frame (see `target`), or
            the path of an `.npz` file. Put the number of classes into it as
            `num_classes`; otherwise it is taken from the training labels, which
            epsilon does not cover.
        data_dir: Directory of `.npz` files; by default that of the environment
            variable `KERAS_DP_DATA`.
        target: Name of the column to predict, for a `.csv` file (a line of column
            names, then a line for each example) or a data frame. Numbers and words
            may be missing.
        user_column: Name of the column that tells to whom a row belongs, if people are
            to be protected and not single rows; it becomes `DataSet.user_ids`.

    Returns:
        A `DataSet`; its `note` says where it came from.

    Raises:
        ValueError: If the name is unknown or the data is broken.
        FileNotFoundError: If the data set cannot be had here; the message says how
            to obtain it.

    Example:

    >>> digits = load("digits")
    >>> digits.x_train.shape
    (1438, 8, 8, 1)
    """
    if is_frame(name):
        return load_frame(name, target, user_column)
    check_name(name)
    if name == "digits" and target is None and user_column is None:
        with resources.as_file(resources.files(__package__) / "digits.npz") as path:
            return _from_npz(name, path, 10, 16.0, "UCI optical digits, embedded")
    if str(name).endswith(".csv"):
        return load_table(Path(name), target, user_column)
    for argument, value in (("target", target), ("user_column", user_column)):
        if value is not None:
            raise ValueError(
                f"Argument `{argument}` (--{argument.replace('_', '-')}) applies to "
                f".csv files and data frames only. Received: {argument}={value} for {name}"
            )
    if str(name).endswith(".npz"):
        return _own_file(Path(name))
    source = _SOURCES[name]
    data_dir = data_dir or os.environ.get(DATA_DIR_VARIABLE)
    if data_dir is not None:
        if not Path(data_dir).is_dir():
            raise FileNotFoundError(
                "Argument `data_dir` must be a directory. "
                f"Received: data_dir={data_dir}"
            )
        for file, remark in source.files.items():
            path = Path(data_dir) / file
            if path.exists():
                note = f"{file}: {remark}" if remark else file
                return _from_npz(name, path, source.num_classes, source.scale, note)
    return _from_tfds(name, source)


def _own_file(path: Path) -> DataSet:
    if not path.exists():
        raise FileNotFoundError(f"Data set file not found: {path}")
    return _from_npz(path.stem, path, None, None, f"own file {path.name}")


def _from_npz(
    name: str, path: Path, num_classes: int | None, scale: float | None, note: str
) -> DataSet:
    """Reads the four arrays; classes and scale of a user's own file are inferred."""
    try:
        archive = np.load(path, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("it is not an archive of arrays")
        with archive:
            arrays = {key: archive[key] for key in KEYS}
            if num_classes is None and "num_classes" in archive:
                num_classes = int(archive["num_classes"])
    except KeyError as error:
        raise ValueError(
            f"Data set file {path} must hold the arrays {', '.join(KEYS)}. "
            f"Received: {error.args[0]}"
        ) from None
    except (ValueError, TypeError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"Data set file {path} cannot be read: {error}") from None
    if num_classes is None:
        num_classes = _count_classes(path, arrays["y_train"])
        note += "; the number of classes is that of the labels, taken to be public"
    if scale is None:
        scale = 255.0 if arrays["x_train"].dtype == np.uint8 else 1.0
    return _finish(name, arrays, num_classes, scale, note)


def _count_classes(path: Path, labels: np.ndarray) -> int:
    if labels.dtype.kind not in "bui" or not labels.size:
        return 2  # What is wrong with them `DataSet` will say.
    num_classes = max(2, int(labels.max()) + 1)
    if num_classes > max(2, labels.size):
        raise ValueError(
            f"Data set file {path} must have labels 0, 1, 2, ... in y_train. "
            f"Received: {labels.size} labels up to {labels.max()}"
        )
    return num_classes


def _from_tfds(name: str, source: _Source) -> DataSet:
    advice = (
        f"Data set `{name}` was not found. Put {' or '.join(source.files)} (arrays "
        f"{', '.join(KEYS)}) into a directory and pass it as `data_dir` (--data-dir) "
        f"or in {DATA_DIR_VARIABLE}"
    )
    if source.tfds_name is None:
        raise FileNotFoundError(f"{advice}.")
    advice += ", or `pip install tensorflow-datasets` on a machine that can download"
    try:
        import tensorflow_datasets as tfds

        arrays = {}
        for part in ("train", "test"):
            # It prints its progress; what a program prints may be JSON.
            with contextlib.redirect_stdout(sys.stderr):
                split = tfds.load(source.tfds_name, split=part, as_supervised=True)
            batches = list(tfds.as_numpy(split.batch(1024)))
            arrays[f"x_{part}"] = source.decode(np.concatenate([x for x, _ in batches]))
            arrays[f"y_{part}"] = np.concatenate([y for _, y in batches])
    except Exception as error:
        # Whatever goes wrong while downloading, the way out is the same.
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise FileNotFoundError(f"{advice} ({reason[0][:200]}).") from error
    return _finish(
        name,
        arrays,
        source.num_classes,
        source.scale,
        f"TensorFlow Datasets, {source.tfds_name}",
    )


def _finish(
    name: str,
    arrays: Mapping[str, np.ndarray],
    num_classes: int,
    scale: float,
    note: str,
) -> DataSet:
    """Gives images a channel axis and integers a type that layers accept."""

    def tidy(x: np.ndarray) -> np.ndarray:
        if x.ndim == 3 and x.dtype == np.uint8:
            return x[..., np.newaxis]
        return x.astype(np.int32) if x.dtype == np.uint16 else x

    return DataSet(
        name=name,
        x_train=tidy(arrays["x_train"]),
        y_train=arrays["y_train"],
        x_test=tidy(arrays["x_test"]),
        y_test=arrays["y_test"],
        num_classes=num_classes,
        scale=scale,
        note=note,
    )
