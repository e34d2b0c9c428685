"""A CSV file or a data frame as a data set, without a statistic of its rows.

Means, scales and vocabularies would be computed from private rows, without noise. So
numbers are squashed by a fixed function, and words are hashed.
"""

from __future__ import annotations

import csv
import math
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from keras_dp_ext.data.sets.data_set import DataSet

# Columns of a hashed word. Words that share one are told apart by other columns.
_BUCKETS = 16

# One part in so many is for testing.
_PARTS = 5

_NOTE = (
    "{file}: names and kinds of the columns, the classes, and the number of rows are "
    "taken to be public; numbers are squashed by sign(v) log(1 + |v|), words are hashed; "
    "a fifth of the {parts}, by a hash of each, is for testing"
)


def load_table(
    path: Path, target: str | None, user_column: str | None = None
) -> DataSet:
    """Reads a CSV file with a line of column names.

    Args:
        path: The file.
        target: Name of the column to predict.
        user_column: Name of the column that tells to whom a row belongs. It is no
            input, and all rows of a person are for training, or all for testing.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file or the target column is not as needed.
    """
    if not path.exists():
        raise FileNotFoundError(f"Data set file not found: {path}")
    return _from_columns(path.stem, path.name, _read(path), target, user_column)


def is_frame(source: Any) -> bool:
    """Whether this is a data frame (of pandas, polars, ...)."""
    return hasattr(source, "columns") and hasattr(source, "__getitem__")


def load_frame(
    frame: Any, target: str | None, user_column: str | None = None
) -> DataSet:
    """As `load_table`, from a data frame in memory."""
    columns = {
        str(name): [_as_in_a_file(value) for value in frame[name]]
        for name in frame.columns
    }
    if len(frame) < 10:
        raise ValueError(
            f"The data frame must have at least ten rows. Received: {len(frame)} rows"
        )
    return _from_columns("table", "data frame", columns, target, user_column)


def _as_in_a_file(value: Any) -> str:
    text = str(value).strip()
    return "" if text in ("None", "nan", "NaT", "<NA>") else text


def _from_columns(
    name: str,
    source: str,
    columns: dict[str, list[str]],
    target: str | None,
    user_column: str | None,
) -> DataSet:
    _check_names(columns, target, user_column)
    contents = ["\x1f".join(row) for row in zip(*columns.values(), strict=True)]
    ids = None
    if user_column is not None:
        contents = _ids(columns.pop(user_column), user_column)
        ids = np.array(contents)
    # Each row decides for itself: one row more must not move others to the other part.
    test = np.array([zlib.crc32(row.encode()) % _PARTS == 0 for row in contents])
    classes, labels = _classes(columns.pop(target), target)
    if not columns:
        raise ValueError(f"The {source} must have columns beside `{target}`.")
    x = np.concatenate([_encode(values) for values in columns.values()], axis=1)
    if test.all() or not test.any():
        raise ValueError(
            f"The {source} must have rows of several kinds, to test on some. "
            f"Received: {len(set(contents))} different rows"
        )
    return DataSet(
        name=name,
        x_train=x[~test],
        y_train=labels[~test],
        x_test=x[test],
        y_test=labels[test],
        num_classes=len(classes),
        note=_NOTE.format(
            file=source, parts="rows" if ids is None else f"values of {user_column}"
        ),
        user_ids=None if ids is None else ids[~test],
    )


def _check_names(
    columns: Collection[str], target: str | None, user_column: str | None
) -> None:
    if target not in columns:
        raise ValueError(
            "Argument `target` (--target) must name the column to predict, one of "
            f"{', '.join(columns)}. Received: target={target}"
        )
    if user_column is not None and user_column not in set(columns) - {target}:
        raise ValueError(
            "Argument `user_column` (--user-column) must name the column of ids, one of "
            f"{', '.join(columns)}, and not the target. Received: "
            f"user_column={user_column}"
        )


def _ids(values: list[str], column: str) -> list[str]:
    if not all(values):
        raise ValueError(
            f"Column `{column}` must have an id in each row: a row without one "
            "could belong to anybody."
        )
    return values


def _classes(values: list[str], column: str) -> tuple[np.ndarray, np.ndarray]:
    """The classes, and for each row the number of its own."""
    classes, labels = np.unique(values, return_inverse=True)
    if len(classes) < 2 or len(classes) > max(2, len(labels) // 10):
        raise ValueError(
            f"Column `{column}` must hold classes, at least two, and ten rows of each "
            f"on average. Received: {len(classes)} values in {len(labels)} rows"
        )
    return classes, labels


def _read(path: Path) -> dict[str, list[str]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            header, *rows = csv.reader(file)
    except (UnicodeDecodeError, csv.Error, ValueError) as error:
        raise ValueError(f"Data set file {path} cannot be read: {error}") from None
    rows = [row for row in rows if row]
    if len(rows) < 10:
        raise ValueError(
            f"Data set file {path} must have a line of column names and at least ten "
            f"rows. Received: {len(rows)} rows"
        )
    for number, row in enumerate(rows):
        if len(row) != len(header):
            raise ValueError(
                f"Data set file {path} must have {len(header)} values in each row. "
                f"Received: {len(row)} in row {number + 1}"
            )
    names = [name.strip() for name in header]
    if len(set(names)) != len(names):
        raise ValueError(
            f"Data set file {path} must give each column a name of its own."
        )
    return {
        name: [value.strip() for value in values]
        for name, values in zip(names, zip(*rows, strict=True), strict=True)
    }


def _encode(values: Sequence[str]) -> np.ndarray:
    """`[rows, features]`: a number and whether it is missing, or hashed words."""
    numbers = [_number(value) for value in values]
    if any(number is None for number in numbers):
        buckets = [zlib.crc32(value.encode()) % _BUCKETS for value in values]
        return np.eye(_BUCKETS, dtype=np.float32)[buckets]
    found = np.array(numbers, np.float64)
    missing = np.isnan(found)
    found[missing] = 0.0
    squashed = np.sign(found) * np.log1p(np.abs(found))
    return np.stack([squashed, missing], axis=1).astype(np.float32)


def _number(value: str) -> float | None:
    """The number; NaN where there is none; `None` for a word."""
    if value in ("", "?", "NA", "NaN", "nan", "null"):
        return math.nan
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else math.nan
