"""Checks that functions of `map` treat every row of a lot by itself.

An example that also changes other rows (mixup, statistics of the batch) moves the sum
by more than one bounded gradient, and so does one that takes the place of a padding
row which has got a weight.

The traced functions are read (`verification/row_analysis`): most are proven to keep rows
apart, for all data. What is known to join rows is refused, whatever it does to made-up
lots. Only ops of unknown types are judged by experiment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext.verification.row_analysis import Verdict, analyse_functions
from keras_dp_ext.verification.synthetic_batches import separating_subsets

# Made-up values of all sizes, for conditions that only some of them meet.
_SCALES = (1e-6, 1e-3, 1.0, 1e3, 1e6)

# How often padding is looked at: a weight may be drawn at random.
_PADDING_TRIALS = 8

_REMEDY = (
    "Every example must be transformed by itself, without mixup or statistics of the "
    "batch, or epsilon does not hold: compute along the axes of one example "
    "(`axis=-1`), use constants that are public, or do it before the lots are drawn."
)


def check_rows(functions: Sequence[Any], element_spec: Any, masked: bool) -> None:
    """Raises unless the functions keep the rows of a lot apart.

    Args:
        functions: Functions of `map`, in the order in which they are applied.
        element_spec: Of the lots that the first one takes.
        masked: Whether rows of weight zero are padding.

    Raises:
        ValueError: If padding gets a weight, or a row may depend on other rows.
    """
    specs = [
        spec
        for spec in tf.nest.flatten(element_spec)
        if isinstance(spec, tf.TensorSpec)  # There may be no targets.
    ]
    # Also while a training step is traced: the functions must run now.
    with tf.init_scope():
        generator = np.random.default_rng()
        if masked:
            _check_padding(functions, specs, generator)
        verdict = analyse_functions([function.graph for function in functions], specs)
        if verdict.hidden:
            raise _mixing_error(f"{verdict.hidden[0]} ")
        if not verdict.is_proven:
            _check_by_experiment(functions, specs, verdict, generator)


# Padding --------------------------------------------------------------------


def _check_padding(
    functions: Sequence[Any], specs: Any, generator: np.random.Generator
) -> None:
    """Lots of padding alone, and of padding beside examples."""
    for trial in range(_PADDING_TRIALS):
        lot = [_zeros(spec) for spec in specs]
        number_of_rows = len(lot[-1])
        rows = np.arange(number_of_rows) < (trial % 2) * (number_of_rows // 2)
        examples = _draw(specs, 1.0, generator)
        examples[-1] = np.ones_like(examples[-1])
        lot = [_mix(a, b, rows) for a, b in zip(examples, lot, strict=True)]
        result = _run(functions, lot, specs)
        if result is not None and np.any(result[-1][~rows] != 0):
            raise ValueError(
                "A function passed to `map` gives padding a sample weight. Rows of "
                "weight 0 must keep it, or epsilon does not hold: multiply the "
                "weight instead of replacing it, or pass `sample_weight` to the "
                "sampler."
            )


# Experiments ----------------------------------------------------------------


def _check_by_experiment(
    functions: Sequence[Any],
    specs: Any,
    verdict: Verdict,
    generator: np.random.Generator,
) -> None:
    """With any rows replaced, the others must stay what they are."""
    reason = f"{verdict.unknown[0]} "
    has_seen = False
    for lot, others in _pairs(specs, generator):
        before, again = (_run(functions, lot, specs) for _ in range(2))
        if before is None or again is None or not all(map(_equal, before, again)):
            continue
        if any(values.shape[:1] != lot[-1].shape for values in before):
            raise _mixing_error(reason)
        has_seen = True
        for kept in separating_subsets(len(lot[-1]), generator):
            new_lot = [_mix(a, b, kept) for a, b in zip(lot, others, strict=True)]
            after = _run(functions, new_lot, specs)
            if after is None or not all(
                _equal(a[kept], b[kept]) for a, b in zip(before, after, strict=True)
            ):
                raise _mixing_error(reason)
    if not has_seen:
        raise _mixing_error(f"{reason}It cannot be tried on made-up rows, either. ")


def _mixing_error(reason: str) -> ValueError:
    return ValueError(
        "A function passed to `map` makes rows of a lot depend on each other, or may "
        f"do so: {reason}{_REMEDY}"
    )


def _pairs(specs: Any, generator: np.random.Generator) -> Iterator[tuple[list, list]]:
    """Lots, and what comes in the place of some of their rows."""
    for scale in _SCALES:
        yield _draw(specs, scale, generator), _draw(specs, scale, generator)
        yield _draw(specs, 1.0, generator), _draw(specs, scale, generator)
    for strange in (np.nan, np.inf, -np.inf):
        lot = _draw(specs, 1.0, generator)
        others = [
            np.full_like(values, strange) if values.dtype.kind == "f" else values
            for values in lot
        ]
        yield lot, others


def _draw(specs: Any, scale: float, generator: np.random.Generator) -> list[np.ndarray]:
    return [_values(spec, scale, generator) for spec in specs]


def _values(
    spec: tf.TensorSpec, scale: float, generator: np.random.Generator
) -> np.ndarray:
    shape = spec.shape.as_list()
    if spec.dtype == tf.string:
        return generator.choice(np.array([b"a", b"b c", b""], object), shape)
    if spec.dtype.is_floating:
        return (scale * generator.normal(size=shape)).astype(spec.dtype.as_numpy_dtype)
    most = (
        int(max(2, min(scale, float(spec.dtype.max)))) if spec.dtype.is_integer else 2
    )
    return generator.integers(0, most, shape).astype(spec.dtype.as_numpy_dtype)


def _zeros(spec: tf.TensorSpec) -> np.ndarray:
    if spec.dtype == tf.string:
        return np.full(spec.shape, b"", object)
    return np.zeros(spec.shape, spec.dtype.as_numpy_dtype)


def _mix(values: np.ndarray, others: np.ndarray, kept: np.ndarray) -> np.ndarray:
    return np.where(kept.reshape(-1, *[1] * (values.ndim - 1)), values, others)


def _run(functions: Sequence[Any], lot: Any, specs: Any) -> list[np.ndarray] | None:
    """What becomes of a lot; `None` if a function fails on it."""
    values = [
        tf.constant(value, spec.dtype) for value, spec in zip(lot, specs, strict=True)
    ]
    try:
        for function in functions:
            values = function(*values)
    except tf.errors.OpError:
        return None
    # Ragged rows come as variants, which NumPy does not know.
    return [value.numpy() for value in values if value.dtype != tf.variant]


def _equal(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype.kind != "f":
        return np.array_equal(a, b)
    return np.allclose(a, b, rtol=1e-6, atol=0.0, equal_nan=True)
