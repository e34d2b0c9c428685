"""cuDNN's recurrent kernels, traced again as the loop that they stand for.

On a GPU, Keras computes LSTM and GRU with one kernel for all steps. It gives the
gradient of the whole batch and nothing in between, so the rules for loops have
nothing to look at. But the op's inputs tell everything: weights, sequence, lengths
and first state. So the losses are computed once more, with a loop in its place.
"""

from __future__ import annotations

import warnings
from typing import Any

import tensorflow as tf

from keras_dp_ext.gradients.graph import copies as copies_lib
from keras_dp_ext.gradients.graph import ops as graph_lib

CUDNN_OPS = frozenset({"CudnnRNN", "CudnnRNNV2", "CudnnRNNV3"})

# For each kind: how many matrices there are for the input (and again for the state),
# and in which order Keras hands over what it has split. cuDNN's GRU has reset and
# update gate the other way round.
_GATES = {b"lstm": (0, 1, 2, 3), b"gru": (1, 0, 2)}

_REARRANGEMENTS = frozenset({"Reshape", "Transpose", "Identity", "Cast"})


def without_cudnn(losses: tf.Tensor) -> tf.Tensor:
    """The same losses, with a loop in place of every recurrent kernel of cuDNN.

    What is not of the form in which Keras calls the kernel stays as it is, for the
    slow exact way.
    """
    ops = graph_lib.ancestors([losses])
    if not any(op.type in CUDNN_OPS for op in ops):
        return losses
    replaced: dict[int, tf.Tensor] = {}
    names = []
    for op in ops:
        weights = _weights(op) if op.type == "CudnnRNNV3" else None
        if weights is None:
            replaced = copies_lib.copy_ops([op], replaced, only_changed=True)
            continue
        given = [replaced.get(id(tensor), tensor) for tensor in op.inputs]
        results = _loop(op, given, *weights)
        names.append(op.name)
        for old, new in zip(op.outputs, results, strict=False):
            new.set_shape(old.shape)
            replaced[id(old)] = new
    if id(losses) not in replaced:
        return losses
    warnings.warn(
        f"{', '.join(names)}: cuDNN's kernel for recurrent layers gives no gradients of "
        "single examples. This training computes them with the layer's own loop. Pass "
        "`use_cudnn=False` to the layer: then the kernel does not run beside the loop, "
        "and Keras can compile the step with XLA.",
        stacklevel=2,
    )
    replaced[id(losses)].set_shape(losses.shape)
    return replaced[id(losses)]


def _weights(op: tf.Operation) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor] | None:
    """Kernel, recurrent kernel and bias as Keras has them, from the packed ones."""
    kind = op.get_attr("rnn_mode")
    order = _GATES.get(kind)
    expected = {
        "input_mode": b"linear_input",
        "direction": b"unidirectional",
        "dropout": 0.0,
        "num_proj": 0,
    }
    if order is None or any(op.get_attr(k) != v for k, v in expected.items()):
        return None
    packed = op.inputs[3].op
    gates = len(order)
    if packed.type != "ConcatV2" or len(packed.inputs) != 4 * gates + 1:
        return None
    pieces = list(packed.inputs)[:-1]
    kernel = _split_value(pieces[:gates], order)
    recurrent = _split_value(pieces[gates : 2 * gates], order)
    twice = (*order, *(gates + gate for gate in order))
    biases = _split_value(pieces[2 * gates :], twice)
    if kernel is None or recurrent is None or biases is None:
        return None
    if kind == b"gru":
        return kernel, recurrent, tf.reshape(biases, [2, -1])
    # cuDNN has two biases, Keras' LSTM one: the first was filled up with zeros.
    joined = biases.op
    if joined.type != "ConcatV2" or not _is_zero(joined.inputs[0]):
        return None
    return kernel, recurrent, joined.inputs[1]


def _split_value(pieces: list[tf.Tensor], order: Any) -> tf.Tensor | None:
    """What was split into these pieces, if it was split in this order."""
    found = []
    for piece in pieces:
        while piece.op.type in _REARRANGEMENTS:
            piece = piece.op.inputs[0]
        found.append(piece)
    split = found[0].op
    if split.type != "Split" or any(piece.op is not split for piece in found):
        return None
    if tuple(piece.value_index for piece in found) != tuple(order):
        return None
    return split.inputs[1]


def _is_zero(tensor: tf.Tensor) -> bool:
    if tensor.op.type == "ZerosLike":
        return True
    value = tf.get_static_value(tensor)
    return value is not None and not value.any()


def _loop(
    op: tf.Operation,
    given: Any,
    kernel: tf.Tensor,
    recurrent: tf.Tensor,
    bias: tf.Tensor,
) -> tuple[tf.Tensor, ...]:
    """What the op returns: all outputs, and the state after the last valid step."""
    sequence, state, cell, _, lengths = given
    time, batch = (0, 1) if op.get_attr("time_major") else (1, 0)
    is_lstm = op.get_attr("rnn_mode") == b"lstm"
    if time == 1:
        sequence = tf.transpose(sequence, [1, 0, 2])
    steps = sequence.shape[0] or tf.shape(sequence)[0]
    states = [tf.squeeze(state, axis=time)]
    if is_lstm:
        states.append(tf.squeeze(cell, axis=time))
    dtype, units = sequence.dtype, recurrent.shape[0]
    entries = tf.TensorArray(dtype, size=steps).unstack(sequence)
    outputs = tf.TensorArray(
        dtype, size=steps, element_shape=[sequence.shape[1], units]
    )
    advance = _lstm_step if is_lstm else _gru_step

    def body(step: Any, outputs: Any, states: Any) -> Any:
        entry = tf.ensure_shape(entries.read(step), sequence.shape[1:])
        new = advance(entry, states, kernel, recurrent, bias)
        # Beyond the end of a sequence: zeros, and the state stays.
        valid = (step < lengths)[:, tf.newaxis]
        output = tf.where(valid, new[0], tf.zeros([], dtype))
        kept = [tf.where(valid, a, b) for a, b in zip(new, states, strict=True)]
        return step + 1, outputs.write(step, output), kept

    _, outputs, states = tf.while_loop(
        lambda step, *_: step < steps,
        body,
        (tf.constant(0), outputs, states),
        maximum_iterations=steps,
    )
    result = outputs.stack()
    if batch == 0:
        result = tf.transpose(result, [1, 0, 2])
    return result, *(tf.expand_dims(state, axis=time) for state in states)


def _lstm_step(
    entry: Any, states: Any, kernel: tf.Tensor, recurrent: tf.Tensor, bias: tf.Tensor
) -> Any:
    hidden, cell = states
    gates = tf.matmul(entry, kernel) + tf.matmul(hidden, recurrent)
    i, f, c, o = tf.split(tf.nn.bias_add(gates, bias), 4, axis=1)
    cell = tf.sigmoid(f) * cell + tf.sigmoid(i) * tf.tanh(c)
    return [tf.sigmoid(o) * tf.tanh(cell), cell]


def _gru_step(
    entry: Any, states: Any, kernel: tf.Tensor, recurrent: tf.Tensor, bias: tf.Tensor
) -> Any:
    (hidden,) = states
    x_z, x_r, x_h = tf.split(tf.matmul(entry, kernel) + bias[0], 3, axis=1)
    h_z, h_r, h_h = tf.split(tf.matmul(hidden, recurrent) + bias[1], 3, axis=1)
    z, r = tf.sigmoid(x_z + h_z), tf.sigmoid(x_r + h_r)
    return [z * hidden + (1 - z) * tf.tanh(x_h + r * h_h)]
