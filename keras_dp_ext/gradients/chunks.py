"""Chunks of rows: how many fit into memory, and loops over them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

#: Bytes of a chunk by default. Small enough to stay in a CPU's cache
#: between two passes over it: for the tanh filter 2.4 times faster than 64 MB.
DEFAULT_CHUNK_BYTES = 4 * 2**20

#: While one chunk is in an op that keeps one core busy, the next one begins.
PARALLEL_CHUNKS = 2

_chunk_bytes = DEFAULT_CHUNK_BYTES
_ACTIVE = threading.local()


def chunk_bytes() -> int:
    """How many bytes of per-example gradients, or of what they are made of, are
    built at a time."""
    return getattr(_ACTIVE, "chunk_bytes", None) or _chunk_bytes


@contextlib.contextmanager
def chunks_of(number: int | None) -> Iterator[None]:
    """Inside it, in this thread, chunks have so many bytes; `None`: as before."""
    former = getattr(_ACTIVE, "chunk_bytes", None)
    _ACTIVE.chunk_bytes = former if number is None else number
    try:
        yield
    finally:
        _ACTIVE.chunk_bytes = former


def set_chunk_bytes(number: int | None = None) -> None:
    """Trades time for memory in everything that is computed in chunks of examples.

    The result does not depend on it. Takes effect where a step is traced: call it
    before `fit`. An optimizer with `chunk_bytes` of its own goes by these.

    Args:
        number: Bytes of a chunk; two chunks are in work at a time. `None` is the
            default, 4 MB.

    Example:

    >>> set_chunk_bytes(2**20)
    >>> chunk_bytes()
    1048576
    >>> set_chunk_bytes()
    """
    global _chunk_bytes
    if number is not None and not (isinstance(number, int) and number > 0):
        raise ValueError(
            "Argument `number` must be a positive number of bytes or None. "
            f"Received: number={number}"
        )
    _chunk_bytes = DEFAULT_CHUNK_BYTES if number is None else number


def rows_per_chunk(row_elements: int, bytes_limit: int | None = None) -> int:
    """How many rows of so many float32 elements fit into one chunk; at least 1."""
    return max(1, (bytes_limit or chunk_bytes()) // (4 * max(1, row_elements)))


def even_chunk(rows: int | tf.Tensor, most: int, grain: int = 1) -> int | tf.Tensor:
    """The size of equal chunks of at most `most` rows; a tensor if `rows` is one.

    Never more than there are rows: what a chunk costs is what its rows cost.

    Args:
        rows: How many rows there are.
        most: How many rows a chunk has at most.
        grain: A divisor of `most`. Chunks of large batches are multiples of it, so
            that few different sizes occur: what XLA compiles, it compiles for each.
    """
    if most == 1:
        return 1
    if isinstance(rows, int):
        count = max(1, -(-rows // most))
        chunk = -(-rows // (count * grain)) * grain
        return max(1, min(rows, chunk))
    count = tf.maximum(1, -(-rows // most))
    chunk = -(-rows // (count * grain)) * grain
    return tf.maximum(1, tf.minimum(rows, chunk))


def map_chunks(
    function: Callable[[tf.Tensor, int | tf.Tensor], Sequence[tf.Tensor]],
    rows: int | tf.Tensor,
    most: int,
    shapes: Sequence[Sequence[int]],
) -> list[tf.Tensor]:
    """Calls a function for one chunk of rows after the other, and joins its results.

    The last chunk may have fewer rows than the others, which XLA cannot compile.

    Args:
        function: From the first row of a chunk and the number of its rows to a
            list of `[number, *shape]` tensors.
        rows: How many rows there are.
        most: How many rows a chunk has at most.
        shapes: Of one row of each result.

    Returns:
        A `[rows, *shape]` tensor for each of `shapes`.
    """
    chunk = even_chunk(rows, most)
    all_are_full = most == 1 or (isinstance(rows, int) and rows % chunk == 0)
    number = tf.convert_to_tensor(rows)
    results = [
        tf.TensorArray(
            tf.float32,
            size=-(-number // chunk),
            infer_shape=False,
            element_shape=[None, *shape],
        )
        for shape in shapes
    ]

    def body(index: Any, results: Any) -> Any:
        start = index * chunk
        size = chunk if all_are_full else tf.minimum(chunk, number - start)
        parts = function(start, size)
        return index + 1, [
            result.write(index, part)
            for result, part in zip(results, parts, strict=True)
        ]

    _, results = tf.while_loop(
        lambda index, _: index * chunk < number,
        body,
        (tf.constant(0), results),
        parallel_iterations=PARALLEL_CHUNKS,
    )
    known = rows if isinstance(rows, int) else None
    return [
        tf.ensure_shape(result.concat(), [known, *shape])
        for result, shape in zip(results, shapes, strict=True)
    ]
