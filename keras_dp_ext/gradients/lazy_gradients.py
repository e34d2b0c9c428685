"""Per-example gradients in factored form: computed as far as a bound asks for them."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from keras_dp_ext._compat import tf_internals
from keras_dp_ext.gradients import contributions as forms
from keras_dp_ext.gradients.base import (
    OuterRows,
    PerExampleGradients,
    distinct,
    one_for_each,
    sum_of_mapped,
)
from keras_dp_ext.gradients.chunks import PARALLEL_CHUNKS, even_chunk, rows_per_chunk
from keras_dp_ext.gradients.joined import JoinedRows
from keras_dp_ext.gradients.made_once import made_once
from keras_dp_ext.gradients.ordinary import OrdinaryGradients
from keras_dp_ext.gradients.packed import PackedContributions
from keras_dp_ext.gradients.requests import ChunkLoop, GivenRows, Norms, WeightedSums
from keras_dp_ext.gradients.row_tensors import (
    have_all_finite_products,
    zero_all_rows,
)
from keras_dp_ext.gradients.rules.device import integer_dtype, is_compiled

if TYPE_CHECKING:
    from keras_dp_ext.gradients.base import RowMap, SumMap

# Products that need not be built count for a sixteenth in a chunk: the probe builds them.
_BUILT = 16

# With more, only a few rows would make a chunk; with less, more ops take longer.
_FEW_ELEMENTS, _MANY_ELEMENTS = 2**12, 2**21

# A variable with a smaller part of the model's elements (1 in 16) is built: there is
# little to save.
_SMALL_SHARE = 16

# Where all products together hold less of the elements, what is built decides how long
# a step takes, and the other way to add them up only makes the graph larger.
_LARGE_SHARE = 0.25


class LazyGradients(PerExampleGradients):
    """Per-example gradients in the factored forms that the rules found.

    Attributes:
        ordinary: The gradients of the same backward pass, for the probe.
        norms: The norms that were asked for so far; the probe tests these very ops.
        sums: The weighted sums that were asked for so far.
        given: The rows that maps were given so far.
    """

    def __init__(
        self,
        contributions: Sequence[forms.Contribution | None],
        shapes: Sequence[tf.TensorShape],
        rows: int | tf.Tensor,
        ordinary: OrdinaryGradients | None = None,
    ):
        self._by_variable = list(contributions)
        self._packed = PackedContributions(contributions)
        self._contributions = self._packed.contributions
        self.shapes = list(shapes)
        self._rows = rows
        self.ordinary = ordinary
        self.norms: list[Norms] = []
        self.sums: list[WeightedSums] = []
        self.given: list[GivenRows] = []

    def copy(self) -> LazyGradients:
        """The same gradients, with none of the results computed so far."""
        fresh = [
            contribution and contribution.map_factors(lambda factor: factor)
            for contribution in self._by_variable
        ]
        return LazyGradients(fresh, self.shapes, self._rows, self.ordinary)

    @property
    def num_rows(self) -> tf.Tensor:
        return tf.convert_to_tensor(self._rows, tf.int32)

    def finite_rows(self) -> tf.Tensor:
        return self._finite

    @functools.cached_property
    def _finite(self) -> tf.Tensor:
        finite = _finite_rows(self._contributions)
        return tf.fill([self._rows], True) if finite is None else finite

    def _raw_norms_squared(
        self, scales: Sequence[tf.Tensor | None] | None = None
    ) -> list[tf.Tensor]:
        scales = self._packed.pack(scales or [None] * len(self.shapes))
        return [
            contribution.norm_squared(scale)
            for contribution, scale in zip(self._contributions, scales, strict=True)
        ]

    def norms_squared(self) -> list[tf.Tensor]:
        parts = [
            tf.zeros([self._rows]) if one is None else one.norm_squared()
            for one in self._by_variable
        ]
        self._total_norm_squared(parts)  # Which tells what is finite.
        parts = [tf.where(self._finite, part, 0.0) for part in parts]
        # Each clips a part of the row by itself: the probe tests them one by one.
        self.norms += [Norms(None, part, [n]) for n, part in enumerate(parts)]
        return parts

    def norm_squared(
        self, scales: Sequence[tf.Tensor | None] | None = None
    ) -> tf.Tensor:
        return self._total_norm_squared(self._raw_norms_squared(scales), scales)

    def _total_norm_squared(
        self, parts: Any, scales: Sequence[tf.Tensor | None] | None = None
    ) -> tf.Tensor:
        norms = tf.zeros([self._rows])
        if parts:
            first, shape = parts[0], tf.shape(parts[0])
            norms = made_once(lambda: tf.add_n(parts), shape, first.dtype, first)
        if scales is None or "_finite" not in self.__dict__:
            # No scale makes a row finite. One whose scaled norm overflows is left out.
            self.__dict__["_finite"] = tf.math.is_finite(norms)
        # A finite row whose scaled norm overflows is long, not short: 0 would let it
        # pass every clip.
        norms = tf.where(tf.math.is_finite(norms), norms, float("inf"))
        norms = tf.where(self._finite, norms, 0.0)
        self.norms.append(Norms(None if scales is None else list(scales), norms))
        return norms

    def weighted_sum(self, coefficients: Any) -> list[tf.Tensor]:
        given = distinct(coefficients)
        used = {id(c): tf.where(self._finite, c, 0.0) for c in given}
        each = one_for_each(coefficients, self.shapes)
        if len(given) == 1:
            (same,) = used.values()
            sums = [
                one.weighted_sum(same) for one in self._summable(self._contributions)
            ]
            sums = self._packed.unpack(sums)
        else:
            sums = [
                contribution and contribution.weighted_sum(used[id(coefficient)])
                for contribution, coefficient in zip(
                    self._summable(self._by_variable), each, strict=True
                )
            ]
        sums = [
            tf.zeros(shape) if value is None else value
            for value, shape in zip(sums, self.shapes, strict=True)
        ]
        self.sums.append(WeightedSums(given, list(sums)))
        return sums

    def _summable(
        self, contributions: Sequence[Any]
    ) -> list[forms.Contribution | None]:
        """Without what is not finite; no copy where everything is."""
        return _with_all_factors(
            contributions,
            lambda one, change: one.summable(change),
            lambda factors: _with_zero_rows(factors, self._finite),
        )

    def sum_of(
        self,
        row_map: RowMap,
        bytes_limit: int | None = None,
        result_shapes: Sequence[Any] | None = None,
    ) -> list[tf.Tensor]:
        def shapes_of_results() -> Sequence[Any]:
            if result_shapes is None:
                return _result_shapes(row_map, self.shapes)
            return result_shapes

        given = self._sum_of_chunks(
            functools.partial(sum_of_mapped, row_map),
            lambda parts, count: self._variable_rows(_rows(parts), count),
            shapes_of_results,
            sum(shape.num_elements() for shape in self.shapes),
            bytes_limit,
        )
        self.given.append(given)
        return given.sums

    def sum_by(
        self,
        sum_map: SumMap,
        bytes_limit: int | None = None,
        joined: int | None = None,
        products: bool = True,
    ) -> list[tf.Tensor]:
        outer = self._products() if products else []
        others = [n for n in range(len(self._contributions)) if n not in outer]
        unused = sum(
            shape.num_elements()
            for one, shape in zip(self._by_variable, self.shapes, strict=True)
            if one is None
        )
        shapes = [self._contributions[number].shape for number in others]
        shapes += [(unused,)] if unused else []
        matrices = JoinedRows(shapes, joined or max(1, len(shapes)))

        def rows_of(parts: Any, count: Any) -> list[Any]:
            rows = _rows([parts[number] for number in others])
            # What the losses do not depend on has zeros, which count in a ranking.
            rows = [*rows, tf.zeros([count, unused])] if unused else rows
            rows = [
                _float_rows(value, count, shape)
                for value, shape in zip(rows, shapes, strict=True)
            ]
            return [*matrices.join(rows), *(parts[n].outer_rows() for n in outer)]

        outer_shapes = [self._contributions[number].outer_shape for number in outer]
        unbuilt = sum(math.prod(self._contributions[number].shape) for number in outer)
        given = self._sum_of_chunks(
            sum_map,
            rows_of,
            lambda: [[size] for size in matrices.sizes] + outer_shapes,
            sum(matrices.sizes) + unbuilt // _BUILT,
            bytes_limit,
        )
        sums: list[Any] = [None] * len(self._contributions)
        found = matrices.split(given.sums[: len(matrices.sizes)])
        for number, value in zip(others, found, strict=False):
            sums[number] = value
        products_found = given.sums[len(matrices.sizes) :]
        for number, value in zip(outer, products_found, strict=True):
            sums[number] = tf.reshape(value, self._contributions[number].shape)
        values = [
            tf.zeros(shape) if value is None else value
            for value, shape in zip(self._packed.unpack(sums), self.shapes, strict=True)
        ]
        self.given.append(dataclasses.replace(given, values=values))
        return values

    def _products(self) -> list[int]:
        """Numbers of contributions that are better left unbuilt."""
        total = sum(shape.num_elements() for shape in self.shapes)
        least = max(_FEW_ELEMENTS, total // _SMALL_SHARE)
        found = [
            number
            for number, one in enumerate(self._contributions)
            if one.outer_shape is not None
            and least < math.prod(one.shape) <= _MANY_ELEMENTS
        ]
        unbuilt = sum(math.prod(self._contributions[n].shape) for n in found)
        return found if unbuilt > _LARGE_SHARE * total else []

    def _sum_of_chunks(
        self,
        sum_map: SumMap,
        rows_of: Callable[[Any, Any], list[Any]],
        result_shapes: Callable[[], Sequence[Any]],
        row_elements: int,
        bytes_limit: int | None,
    ) -> GivenRows:
        """Sums that `sum_map` makes of the rows, chunk by chunk.

        Loops over chunks of one size, as XLA wants it; the last one starts early
        enough to end with the batch, and skips the rows that were done before.

        Args:
            sum_map: What adds them up.
            rows_of: What the map is given, from all contributions and their number of
                rows.
            result_shapes: What the map makes of one row.
            row_elements: How many numbers of a row are in memory.
            bytes_limit: Of a chunk.
        """
        most = rows_per_chunk(row_elements, bytes_limit)
        if isinstance(self._rows, int) and self._rows <= most:
            given = rows_of(_finite_only(self._contributions, None), self._rows)
            return GivenRows(_built(given), None, sum_map(list(given)))
        # A rule that makes chunks of its own would cut one in two once more.
        limits = [one.rows_at_once for one in self._contributions]
        most = min([most, *(n for n in limits if n and most <= 2 * n)])
        grain = max(1, most // 8)
        chunk = even_chunk(self._rows, most - most % grain, grain)
        rows = self.num_rows
        of_loop: dict[str, Any] = {}

        def has_more(done: Any, sums: Any) -> tf.Tensor:
            of_loop["more"] = done < rows
            return of_loop["more"]

        def body(done: Any, sums: Any) -> Any:
            start = tf.minimum(done, rows - chunk)
            integers = integer_dtype()
            fresh = tf.range(tf.cast(chunk, integers)) >= tf.cast(
                done - start, integers
            )
            sliced = [
                one.sliced(start, chunk).of_at_most(most) for one in self._contributions
            ]
            given = rows_of(_finite_only(sliced, fresh), chunk)
            # The probe looks at products that the map may leave unbuilt.
            of_loop.update(done=done, start=start, given=_built(given))
            part = sum_map(list(given))
            return done + chunk, [a + b for a, b in zip(sums, part, strict=True)]

        _, sums = tf.while_loop(
            has_more,
            body,
            (tf.constant(0), _zeros(result_shapes())),
            parallel_iterations=PARALLEL_CHUNKS,
        )
        loop = ChunkLoop(
            of_loop["done"],
            of_loop["start"],
            of_loop["more"],
            None if isinstance(chunk, int) else chunk,
            sums[0],
        )
        return GivenRows(of_loop["given"], loop, list(sums))

    def _variable_rows(self, packed: Any, count: Any) -> list[tf.Tensor]:
        """`[count, *shape]` for each variable."""
        return [
            tf.zeros([count, *shape])
            if value is None
            else _float_rows(value, count, shape)
            for value, shape in zip(
                self._packed.unpack(packed, is_rows=True), self.shapes, strict=True
            )
        ]


def _zeros(shapes: Sequence[Any]) -> list[tf.Tensor]:
    """One tensor for all that are equal: a deep model's layers have few shapes."""
    shapes = [tuple(shape) for shape in shapes]
    made = {shape: tf.zeros(shape) for shape in set(shapes)}
    return [made[shape] for shape in shapes]


def _finite_only(contributions: Sequence[Any], keep: tf.Tensor | None) -> list[Any]:
    """The same, of which rows that are not finite are zero."""
    finite = _finite_rows(contributions)
    if finite is not None:
        keep = finite if keep is None else finite & keep
    if keep is None:
        return list(contributions)
    return _with_all_factors(
        contributions,
        lambda one, change: one.sanitized(change),
        lambda factors: _with_zero_rows(factors, keep),
    )


def _with_all_factors(
    contributions: Sequence[Any],
    apply: Callable[[Any, forms.RowwiseMap], Any],
    change_all: Callable[[list[tf.Tensor]], list[tf.Tensor]],
) -> list[Any]:
    """Contributions with other factors, which are changed all at once.

    Args:
        contributions: Some of which may be `None`.
        apply: From a contribution and a map of factors to the new contribution.
        change_all: Changes factors; one that several contributions have, once.
    """
    factors: dict[int, tf.Tensor] = {}
    for one in contributions:
        if one is not None:
            apply(one, lambda factor: factors.setdefault(id(factor), factor))
    changed = dict(zip(factors, change_all(list(factors.values())), strict=True))
    return [
        one and apply(one, lambda factor: changed[id(factor)]) for one in contributions
    ]


def _rows(contributions: Sequence[Any]) -> list[tf.Tensor]:
    return [one.rows() for one in contributions]


def _built(given: Sequence[Any]) -> list[tf.Tensor]:
    return [one.built() if isinstance(one, OuterRows) else one for one in given]


def _with_zero_rows(factors: list[tf.Tensor], finite: tf.Tensor) -> list[tf.Tensor]:
    """Zeros in place of rows that are not finite, which are rare: one condition for
    all factors saves a pass over all of them."""

    def zeroed() -> list[tf.Tensor]:
        return zero_all_rows(factors, finite)

    if not factors or is_compiled():
        return zeroed()
    results = tf.cond(tf.reduce_all(finite), lambda: list(factors), zeroed)
    # The result of a single branch comes without its list.
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    for factor, result in zip(factors, results, strict=True):
        result.set_shape(factor.shape)
    return results


def _finite_rows(contributions: Sequence[Any]) -> tf.Tensor | None:
    """`[rows]`: which rows are finite in every coordinate of every variable."""
    pairs = [one.checked_factors for one in contributions]
    finite = [
        one.finite_rows()
        for one, pair in zip(contributions, pairs, strict=True)
        if pair is None
    ]
    known = [pair for pair in pairs if pair is not None]
    if known:
        finite.append(have_all_finite_products(known))
    return functools.reduce(tf.logical_and, finite) if finite else None


def _result_shapes(row_map: RowMap, shapes: Any) -> list[tf.TensorShape]:
    """What a row map makes of one row."""
    with tf_internals.scratch_graph("row_map_shapes").as_default():
        sums = sum_of_mapped(row_map, [tf.zeros([1, *shape]) for shape in shapes])
    return [total.shape for total in sums]


def _float_rows(rows: Any, count: Any, shape: Sequence[int]) -> Any:
    rows = tf.cast(rows, tf.float32)
    if isinstance(count, int):
        rows = tf.ensure_shape(rows, [count, *shape])
    return rows
