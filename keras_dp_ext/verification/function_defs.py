"""FunctionDefs: the same function in float64, and what tells two functions apart."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, function_pb2, types_pb2

_WIDENED = frozenset({types_pb2.DT_FLOAT, types_pb2.DT_HALF, types_pb2.DT_BFLOAT16})
_DOUBLE = types_pb2.DT_DOUBLE

# Attributes that differ between two traces of the same model.
_NAMES = frozenset({"_class", "_gradient_op_type", "_output_shapes", "_input_shapes"})

FindFunction = Callable[[str], function_pb2.FunctionDef]


def doubled_type(dtype: tf.DType) -> tf.DType:
    return tf.float64 if dtype.as_datatype_enum in _WIDENED else dtype


def doubled_value(value: tf.Tensor) -> tf.Tensor:
    return (
        tf.cast(value, doubled_type(value.dtype)) if value.dtype.is_floating else value
    )


def in_double_precision(
    definition: function_pb2.FunctionDef, find: FindFunction, name: str
) -> list[function_pb2.FunctionDef]:
    """The function and all that it calls, with float64 for every smaller float.

    Returns:
        Those that are called before their callers, the function itself last.
    """
    made: dict[str, str] = {}
    found: list[function_pb2.FunctionDef] = []

    def double(definition: Any, new_name: Any) -> None:
        result = copy.deepcopy(definition)
        result.signature.name = new_name
        for argument in (*result.signature.input_arg, *result.signature.output_arg):
            if argument.type in _WIDENED:
                argument.type = _DOUBLE
        for node in result.node_def:
            for key, value in node.attr.items():
                if key not in _NAMES:
                    _double_attribute(value, double_function)
            node.attr.pop("_output_shapes", None)
        for attributes in (result.attr, *(a.attr for a in result.arg_attr.values())):
            attributes.pop("_output_shapes", None)
        found.append(result)

    def double_function(called: str) -> str:
        if called not in made:
            made[called] = f"{name}_{len(made)}"
            double(find(called), made[called])
        return made[called]

    double(definition, name)
    return found


def _double_attribute(value: attr_value_pb2.AttrValue, double_function: Any) -> None:
    kind = value.WhichOneof("value")
    if kind == "type" and value.type in _WIDENED:
        value.type = _DOUBLE
    elif kind == "tensor" and value.tensor.dtype in _WIDENED:
        wide = tf.make_ndarray(value.tensor).astype(np.float64)
        value.tensor.CopyFrom(tf.make_tensor_proto(wide))
    elif kind == "func":
        value.func.name = double_function(value.func.name)
    elif kind == "list":
        for number, dtype in enumerate(value.list.type):
            if dtype in _WIDENED:
                value.list.type[number] = _DOUBLE
        for function in value.list.func:
            function.name = double_function(function.name)


def fingerprint(definition: function_pb2.FunctionDef, find: FindFunction) -> bytes:
    """All that a function computes: ops, constants, order of inputs, inner functions.

    Not the names of its ops, nor the devices on which they run: a second model of the
    same architecture, or a second replica, has others.
    """
    known: dict[str, bytes] = {}

    def of_function(name: str) -> bytes:
        if name not in known:
            known[name] = b"itself"  # Where a function calls itself.
            try:
                known[name] = digest(find(name))
            except tf.errors.NotFoundError:
                known[name] = name.encode()
        return known[name]

    def digest(definition: Any) -> bytes:
        result = hashlib.sha256()
        numbers: dict[str, int] = {}
        for argument in definition.signature.input_arg:
            numbers[argument.name] = len(numbers)
            result.update(f"argument {argument.type} ".encode())
        for node in definition.node_def:
            numbers[node.name] = len(numbers)
        for node in definition.node_def:
            inputs = [_numbered(name, numbers) for name in node.input]
            result.update(f"{node.op} {inputs} ".encode())
            for key in sorted(node.attr):
                if key in _NAMES:
                    continue
                value = node.attr[key]
                result.update(key.encode())
                for function in _functions(value):
                    result.update(of_function(function))
                if not _functions(value):
                    result.update(value.SerializeToString(deterministic=True))
        for argument in definition.signature.output_arg:
            returned = _numbered(definition.ret[argument.name], numbers)
            result.update(f"returns {returned} ".encode())
        return result.digest()

    return digest(definition)


def _functions(value: attr_value_pb2.AttrValue) -> list[str]:
    kind = value.WhichOneof("value")
    if kind == "func":
        return [value.func.name]
    return [one.name for one in value.list.func] if kind == "list" else []


def _numbered(name: str, numbers: dict[str, int]) -> str:
    """`node:output:0` or `^node`, by the number of the node."""
    mark = "^" if name.startswith("^") else ""
    node, colon, rest = name.lstrip("^").partition(":")
    return f"{mark}{numbers[node]}{colon}{rest}"
