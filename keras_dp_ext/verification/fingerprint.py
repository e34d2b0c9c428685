"""What tells one verified step from another: all that a verdict depends on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import tensorflow as tf

from keras_dp_ext._compat import tf_internals
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.rules.device import is_compiled
from keras_dp_ext.verification import function_defs
from keras_dp_ext.verification.graph_function import GraphFunction
from keras_dp_ext.verification.variable_copies import is_seed


def fingerprint(
    functions: Sequence[GraphFunction],
    sources: Sequence[tf.Tensor],
    variables: Sequence,
    group: int,
) -> bytes:
    """Equal for two steps only if a verdict on one holds for the other.

    In it are all ops, constants and inner functions of the forward pass, of the rules
    and of the ordinary gradients; shapes and types of data and variables; captured
    constants by their values. Not in it are the values of float variables, which the
    probe replaces by others, and names.

    Args:
        functions: That the probe runs.
        sources: Through which data enters.
        variables: The trainable variables.
        group: Examples per microbatch.
    """
    digest = hashlib.sha256(f"{tf.__version__} {group} {is_compiled()} ".encode())
    find = tf_internals.function_definition
    handles: dict[int, int] = {}
    for function in functions:
        digest.update(function_defs.fingerprint(function.definition, find))
        for tensor in function.inputs:
            digest.update(f"{tensor.dtype.name} {tensor.shape} ".encode())
        for source in function.sources:
            # Two captures of one variable differ from captures of two.
            number = handles.setdefault(id(source), len(handles))
            digest.update(f"{number} ".encode() + _captured(source))
    for source in sources:
        digest.update(f"{source.dtype.name} {source.shape} ".encode())
    for variable in variables:
        handle = graph_lib.captured_source(graph_lib.variable_handle(variable))
        digest.update(f"{handles.get(id(handle))} {tuple(variable.shape)} ".encode())
    return digest.digest()


def _captured(source: tf.Tensor) -> bytes:
    if source.dtype != tf.resource:
        return _value(source)
    dtype = tf_internals.variable_dtype(source)
    if dtype is None:
        # A table. Unlike `id`, this number is never given to a second one.
        return f"resource {tf_internals.tensor_identity(source)} ".encode()
    shape = tf_internals.variable_shape(source)
    described = f"variable {dtype.name} {shape} ".encode()
    if dtype.is_floating or not shape.is_fully_defined() or is_seed(dtype, shape):
        return described
    # A counter, a mask, a quantised kernel: nothing moves it in the probe.
    if not tf.raw_ops.VarIsInitializedOp(resource=source):
        return described
    return described + _value(tf.raw_ops.ReadVariableOp(resource=source, dtype=dtype))


def _value(tensor: tf.Tensor) -> bytes:
    if tensor.dtype == tf.variant:
        return f"variant {tf_internals.tensor_identity(tensor)} ".encode()
    array = tensor.numpy()
    data = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
    return f"{array.dtype} {array.shape} ".encode() + data
