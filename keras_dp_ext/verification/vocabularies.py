"""Words that the tables of a model know: public, as they are part of the model."""

from __future__ import annotations

import tensorflow as tf

from keras_dp_ext.verification.graph_function import GraphFunction

# Enough to choose from.
_MOST = 1000


def vocabulary_of(function: GraphFunction) -> list[bytes]:
    """Keys of the tables in which a function looks up strings."""
    found: dict[bytes, None] = {}
    for tensor, source in zip(function.captures, function.sources, strict=True):
        if tensor.dtype != tf.resource:
            continue
        for consumer in tensor.consumers():
            if consumer.type != "LookupTableFindV2":
                continue
            if consumer.get_attr("Tin") != tf.string:
                continue
            keys, _ = tf.raw_ops.LookupTableExportV2(
                table_handle=source, Tkeys=tf.string, Tvalues=consumer.get_attr("Tout")
            )
            found.update(dict.fromkeys(keys[:_MOST].numpy().tolist()))
    return list(found)
