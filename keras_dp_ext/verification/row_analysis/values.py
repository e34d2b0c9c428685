"""Abstract values: what is known about where the examples are in a tensor."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Hashable
from typing import Any

import numpy as np

from keras_dp_ext.verification.row_analysis.sizes import AnySize, product, quotient


class Kind(enum.Enum):
    """How a tensor depends on the examples of a batch."""

    # Not at all: weights, seeds, random draws, shapes.
    CONSTANT = "constant"
    # Examples lie along one axis, and each entry depends on its own example only.
    ROWS = "rows"
    # All of the tensor belongs to one example, by a number that is known by name.
    ONE_ROW = "one row"
    # A number of entries for each example that depends on the data, one example behind
    # the other: words of texts, and what tells where one text ends.
    PIECES = "pieces"
    # Nothing is known: entries may depend on any example.
    MIXED = "mixed"


class First(enum.Enum):
    """What `x[..., 0]` of a constant tensor is."""

    # Zero, and so are all other entries.
    ALL_ZERO = "all zero"
    ZERO = "zero"
    # The index along the first axis.
    NUMBER = "number"


@dataclasses.dataclass(frozen=True, eq=False)
class Value:
    """What is known about a tensor, or about the elements of a list of tensors.

    With `kind=ROWS`, the axis has the size `outer * batch * block`, and the index
    `(o * batch + example) * block + k` belongs to `example`: `block > 1` where
    `[batch, time]` was merged, `outer > 1` where `[time, batch]` was. The sizes of all
    axes are public.

    A list of tensors is described like the tensor that stacks them, without its first
    axis: `axis=-1` says that the number of an element is that of its example.

    Attributes:
        kind: How it depends on the examples.
        shape: Sizes of the axes; `None` if even their number is unknown.
        axis: Where the examples are.
        outer: See above.
        block: See above.
        row: With `kind=ONE_ROW`, the name of the number of the example.
        content: The entries of a small constant tensor of integers, as sizes; `None`
            stands for those which are not known.
        length: Of a list.
        counts: Whether a constant vector holds `0, 1, 2, ...`.
        first: The first entries along the last axis of a constant tensor of integers,
            if they are known: see `transfer/numbering.py`.
        role: What it tells about the pieces that `row` names: see `transfer/text.py`;
            or "numbered", if the last axis begins with the number of the example.
    """

    kind: Kind
    shape: tuple[AnySize, ...] | None = None
    axis: int = 0
    outer: AnySize = 1
    block: AnySize = 1
    row: Hashable = None
    content: np.ndarray | None = None
    length: AnySize | None = None
    counts: bool = False
    first: First | None = None
    role: str | None = None

    @property
    def is_constant(self) -> bool:
        return self.kind is Kind.CONSTANT

    @property
    def has_rows(self) -> bool:
        return self.kind is Kind.ROWS

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def layout(self) -> tuple[AnySize, AnySize]:
        return self.outer, self.block

    def with_shape(self, shape: Any, axis: int | None = None) -> Value:
        """The same dependence in a tensor of another shape."""
        return dataclasses.replace(
            self,
            shape=None if shape is None else tuple(shape),
            axis=self.axis if axis is None else axis,
            content=None,
            counts=False,
            first=None,
            role=None,
        )

    def is_same(self, other: Value) -> bool:
        return (
            self.kind is other.kind
            and self.shape == other.shape
            and (self.axis, *self.layout) == (other.axis, *other.layout)
            and self.row == other.row
            and self.length == other.length
            and (self.counts, self.first) == (other.counts, other.first)
            and self.role == other.role
            and _same_content(self.content, other.content)
        )


def _same_content(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and a.tolist() == b.tolist()


def constant(shape: Any = None, content: Any = None) -> Value:
    return Value(Kind.CONSTANT, shape=shape, content=content)


MIXED = Value(Kind.MIXED)


def reshaped(value: Value, shape: tuple[AnySize, ...], batch: AnySize) -> Value | None:
    """The value after its entries got another shape, or `None` if rows are not found.

    The index of an entry is `(before, example, after)` for some numbers of entries
    before and after; a new axis holds the examples if it holds that factor whole.
    """
    before = product(value.shape[: value.axis]) * value.outer
    after = product(value.shape[value.axis + 1 :]) * value.block
    for axis, size in enumerate(shape):
        outer = quotient(before, product(shape[:axis]))
        block = quotient(after, product(shape[axis + 1 :]))
        if outer is None or block is None or size != outer * batch * block:
            continue
        return dataclasses.replace(
            value.with_shape(shape, axis), outer=outer, block=block
        )
    return None
