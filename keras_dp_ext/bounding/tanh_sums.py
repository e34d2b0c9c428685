"""Sums of tangents of products: as matrix products, where an odd polynomial is enough."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext.bounding.tanh_rows import tangents
from keras_dp_ext.gradients.base import OuterRows, RowMap, SumMap, combine_rows
from keras_dp_ext.gradients.base import sum_of_mapped as sum_of_rows
from keras_dp_ext.gradients.chunks import PARALLEL_CHUNKS, rows_per_chunk

# How many terms give tanh(x) / x and its square to 7e-8, for |x| up to a range. Beyond
# the last range powers grow as fast as tangents saturate.
_TERMS = (2, 3, 4, 5, 8)
_RANGES = (1 / 32, 1 / 8, 1 / 4, 1 / 2, 1.0)


def tanh_sums(
    row_map: RowMap,
    output_range: float,
    factor: float,
    l2_norm_clip: float | None,
) -> SumMap:
    """What `sum_of_mapped` makes with `tanh_rows`, without building products.

    Where `|factor * u_i v_j|` is at most 1 for all coordinates of a row, its tangents are
    those of a polynomial to float32: `tanh(u v) = sum_k t_k u^(2k+1) v^(2k+1)`. So every
    term of the sum over rows is one product of matrices, and the squared norm
    `sum_k s_k |u^k|^2 |v^k|^2` is a sum of products of moments. All other rows, whole,
    go to the row map. Which way a row takes and how many terms it has depends on this
    row alone.

    Args:
        row_map: Of `tanh_rows`, with the same settings.
        output_range: See `tanh_filter`.
        factor: What gradients are multiplied by before the tangent.
        l2_norm_clip: See `tanh_rows`.
    """

    def sums(rows: list[Any]) -> list[tf.Tensor]:
        products = [_Product(one, factor) for one in rows if _is_product(one)]
        if not products:
            return sum_of_rows(row_map, rows)
        filtered = [None if _is_product(one) else tangents(one, factor) for one in rows]
        is_small = tf.reduce_all([one.reach <= _RANGES[-1] for one in products], axis=0)
        squares = [
            tf.reduce_sum(tf.square(one), axis=1) for one in filtered if one is not None
        ]
        terms = tf.reduce_max(
            [tf.reduce_max(tf.where(is_small, one.terms, 0)) for one in products]
        )
        expanded = [one.expanded(is_small, terms) for one in products]
        norm = tf.sqrt(tf.add_n(squares + [one.squares() for one in expanded]))
        shrink = tf.fill(tf.shape(norm), float(output_range))
        if l2_norm_clip is not None:
            shrink = output_range * tf.minimum(
                1.0, l2_norm_clip / (output_range * norm)
            )
        shrink = tf.where(is_small, shrink, 0.0)
        following = iter(expanded)
        found = [
            next(following).sum(shrink) if one is None else combine_rows(shrink, one)
            for one in filtered
        ]
        return tf.cond(
            tf.reduce_all(is_small),
            lambda: found,
            lambda: _add_others(found, row_map, rows, is_small),
        )

    return sums


def _is_product(rows: Any) -> bool:
    return isinstance(rows, OuterRows)


def _add_others(
    found: list[tf.Tensor], row_map: RowMap, rows: list[Any], is_small: tf.Tensor
) -> list[tf.Tensor]:
    """Adds the rows that are not small, as many at a time as fit into a chunk."""
    numbers = tf.reshape(tf.where(~is_small), [-1])
    count = tf.size(numbers)
    most = rows_per_chunk(sum(total.shape.num_elements() for total in found))

    def body(done: tf.Tensor, sums: Any) -> Any:
        chosen = numbers[done : done + most]
        if most == 1:
            chosen = tf.ensure_shape(chosen, [1])
        built = []
        for one in rows:
            if isinstance(one, OuterRows):
                one = OuterRows(*(tf.gather(part, chosen) for part in one)).built()
            else:
                one = tf.gather(one, chosen)
            built.append(one)
        part = sum_of_rows(row_map, built)
        return done + most, [a + b for a, b in zip(sums, part, strict=True)]

    _, sums = tf.while_loop(
        lambda done, _: done < count,
        body,
        (tf.constant(0), list(found)),
        parallel_iterations=PARALLEL_CHUNKS,
    )
    return sums


class _Product:
    """Rows that are products, with their ranges.

    Attributes:
        reach: `[rows]`: the largest magnitude of each, before the tangent.
        terms: `[rows]`: how many terms each one needs.
    """

    def __init__(self, rows: OuterRows, factor: float):
        # In units of their own: no power underflows that matters.
        largest = [tf.reduce_max(tf.abs(part), axis=1, keepdims=True) for part in rows]
        self._units = list(map(tf.math.divide_no_nan, rows, largest))
        self.reach = (abs(factor) * largest[0] * largest[1])[:, 0]
        self._range = tf.reduce_sum(
            tf.cast(self.reach[:, tf.newaxis] > tf.constant(_RANGES[:-1]), tf.int32),
            axis=1,
        )
        self.terms = tf.gather(tf.constant(_TERMS), self._range)

    def expanded(self, chosen: tf.Tensor, terms: tf.Tensor) -> _Expanded:
        """The terms of the chosen rows; powers of the others would overflow."""
        reach = tf.where(chosen, self.reach, 0.0)
        return _Expanded(self._units, reach, self._range, terms)


class _Expanded:
    """The terms of the polynomials of such rows.

    Args:
        units: Both factors, `[rows, n]`, with magnitudes of at most 1.
        reach: `[rows]`.
        ranges: `[rows]`: which polynomial.
        terms: How many terms at the most.
    """

    def __init__(
        self,
        units: Sequence[tf.Tensor],
        reach: tf.Tensor,
        ranges: tf.Tensor,
        terms: tf.Tensor,
    ):
        self._units = units
        # `[terms, rows, n]`: even powers.
        self._powers = [_powers(tf.square(one), terms) for one in units]
        tangents, squares = _coefficients()
        scale = _powers(tf.square(reach), terms) * reach
        self._tangents = scale * tf.transpose(tf.gather(tangents, ranges))[:terms]
        scale *= reach
        self._squares = scale * tf.transpose(tf.gather(squares, ranges))[:terms]

    def squares(self) -> tf.Tensor:
        """`[rows]`: squared norms of the tangents."""
        left, right = (
            tf.reduce_sum(power * tf.square(unit), axis=2)
            for power, unit in zip(self._powers, self._units, strict=True)
        )
        return tf.reduce_sum(self._squares * left * right, axis=0)

    def sum(self, coefficients: tf.Tensor) -> tf.Tensor:
        """The sum of `coefficients[b] * tanh(...)`."""
        left, right = (
            power * unit for power, unit in zip(self._powers, self._units, strict=True)
        )
        left *= (self._tangents * coefficients)[:, :, tf.newaxis]
        return tf.matmul(
            tf.reshape(left, [-1, left.shape[2]]),
            tf.reshape(right, [-1, right.shape[2]]),
            transpose_a=True,
        )


def _powers(base: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
    """`[count, ...]`: powers 0, 1, 2, ...

    All that there may be, one by one: `tf.math.cumprod` takes six times as long.
    """
    powers = [tf.ones_like(base)]
    for _ in range(1, max(_TERMS)):
        powers.append(powers[-1] * base)
    return tf.stack(powers)[:count]


@functools.cache
def _coefficients() -> tuple[np.ndarray, np.ndarray]:
    """`[ranges, terms]` of `tanh(x) / x` and of its square, as polynomials of `x^2`."""

    def quotient(y: np.ndarray) -> np.ndarray:
        return np.tanh(np.sqrt(y)) / np.sqrt(y)

    return _fitted(quotient), _fitted(lambda y: quotient(y) ** 2)


def _fitted(function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Coefficients by interpolation at Chebyshev's points, all of which are above 0."""
    table = np.zeros([len(_TERMS), max(_TERMS)], np.float32)
    for number, (terms, end) in enumerate(zip(_TERMS, _RANGES, strict=True)):
        fit = np.polynomial.Chebyshev.interpolate(
            function, terms - 1, domain=[0, end * end]
        )
        table[number, :terms] = fit.convert(kind=np.polynomial.Polynomial).coef
    return table
