"""What the tables of a model know: public, as it is part of the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tensorflow as tf

from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.verification.graph_function import GraphFunction

# Enough to choose from.
_MOST = 1000


def vocabulary_of(function: GraphFunction) -> list[bytes]:
    """Keys of the tables in which a function looks up strings."""
    found: dict[bytes, None] = {}
    for lookup, table in _lookups(function):
        if lookup.get_attr("Tin") == tf.string:
            found.update(dict.fromkeys(_keys(lookup, table)))
    return list(found)


def numbers_of(
    function: GraphFunction, sources: Sequence[tf.Tensor]
) -> dict[int, list[int]]:
    """Keys of the tables in which a function looks up one of the sources.

    Returns:
        By the number of the source; tables with a single key are left out.
    """
    found = {}
    for lookup, table in _lookups(function):
        if not lookup.get_attr("Tin").is_integer:
            continue
        before = {
            id(output)
            for op in graph_lib.ancestors([lookup.inputs[1]])
            for output in op.outputs
        }
        of_data = [n for n, source in enumerate(sources) if id(source) in before]
        keys = _keys(lookup, table)
        if len(of_data) == 1 and sources[of_data[0]].dtype.is_integer and keys[1:]:
            found[of_data[0]] = keys
    return found


def _lookups(
    function: GraphFunction,
) -> Iterator[tuple[tf.Operation, tf.Tensor]]:
    """Ops that look something up, and the tables."""
    for tensor, source in zip(function.captured, function.sources, strict=True):
        if tensor.dtype == tf.resource:
            for consumer in tensor.consumers():
                if consumer.type == "LookupTableFindV2":
                    yield consumer, source


def _keys(lookup: tf.Operation, table: tf.Tensor) -> list:
    keys, _ = tf.raw_ops.LookupTableExportV2(
        table_handle=table,
        Tkeys=lookup.get_attr("Tin"),
        Tvalues=lookup.get_attr("Tout"),
    )
    return keys[:_MOST].numpy().tolist()
