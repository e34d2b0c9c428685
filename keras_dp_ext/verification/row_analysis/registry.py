"""The registry of transfer functions, by TensorFlow op type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext.verification.row_analysis.values import Value

# transfer(op, inputs, context) -> the values of the outputs; one value stands for all.
#   inputs: what is known about the op's inputs; at least one has rows
#   context: the interpreter, which knows the batch size and names unknown sizes
# Raises `RowsLostError` where the op may mix examples.
Transfer = Callable[[tf.Operation, Sequence[Value], Any], Value | list[Value]]

_TRANSFERS: dict[str, Transfer] = {}
_CONTENTS: dict[str, Transfer] = {}
_PIECES: dict[str, Transfer] = {}


def register(*op_types: str) -> Callable[[Transfer], Transfer]:
    """Declares how op types move the examples of their inputs.

    A wrong function would make a wrong proof: `tests/verification` compares each
    family with what TensorFlow computes.
    """
    return _registrar(_TRANSFERS, op_types)


def register_content(*op_types: str) -> Callable[[Transfer], Transfer]:
    """Declares what constant inputs, such as shapes, become."""
    return _registrar(_CONTENTS, op_types)


def register_pieces(*op_types: str) -> Callable[[Transfer], Transfer]:
    """Declares what becomes of pieces, of which an example has any number."""
    return _registrar(_PIECES, op_types)


def _registrar(table: dict[str, Transfer], op_types: Any) -> Any:
    def add(function: Transfer) -> Transfer:
        for op_type in op_types:
            if op_type in table:
                raise ValueError(f"Two functions for op type {op_type}.")
            table[op_type] = function
        return function

    return add


def find_transfer(op_type: str) -> Transfer | None:
    return _TRANSFERS.get(op_type)


def find_content(op_type: str) -> Transfer | None:
    return _CONTENTS.get(op_type)


def find_pieces(op_type: str) -> Transfer | None:
    return _PIECES.get(op_type)
