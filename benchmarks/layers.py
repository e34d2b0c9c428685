"""Every trainable Keras layer: is it right, has it a rule, what does it cost?

Makes docs/layers.md. The cases are those that tests/gradients checks on small
inputs.

    python -m benchmarks.layers --output docs/layers.md

On a busy machine, `--keep-ratios` checks the gradients only, and takes the ratios from
the table that is there.
"""

from __future__ import annotations

import argparse
import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np


@dataclasses.dataclass(frozen=True)
class Case:
    """A small model around one layer.

    Attributes:
        layer: `layer(keras) -> callable` from an input tensor to an output tensor.
        shape: Of one example.
        tokens: Number of tokens, if inputs are integers.
    """

    layer: Callable
    shape: tuple[int, ...]
    tokens: int | None = None

    def model(self, shape: tuple[int, ...] | None = None):
        import keras

        inputs = keras.Input(
            shape or self.shape, dtype="float32" if self.tokens is None else "int32"
        )
        return keras.Model(inputs, self.layer(keras)(inputs))

    def inputs(self, batch: int, shape: tuple[int, ...] | None = None) -> np.ndarray:
        generator = np.random.default_rng(1)
        size = (batch, *(shape or self.shape))
        if self.tokens is None:
            return generator.normal(size=size).astype(np.float32)
        return generator.integers(0, self.tokens, size).astype(np.int32)


def _layer(name: str, *arguments, **keywords):
    return lambda keras: getattr(keras.layers, name)(*arguments, **keywords)


def _chain(*makers):
    def build(keras):
        def apply(x):
            for make in makers:
                x = make(keras)(x)
            return x

        return apply

    return build


def _attention(name: str, **keywords):
    def build(keras):
        layer = getattr(keras.layers, name)(**keywords)
        return lambda x: layer(x, x)

    return build


def _shared(keras):
    layer = keras.layers.Dense(5, activation="tanh")
    return lambda x: layer(layer(x))


def _tied_embedding(keras):
    if hasattr(keras.layers, "ReversibleEmbedding"):
        embedding = keras.layers.ReversibleEmbedding(11, 4)
        return lambda x: embedding(embedding(x), reverse=True)

    class TiedEmbedding(keras.layers.Layer):
        """The same for the oldest Keras, which does not have the layer."""

        def __init__(self):
            super().__init__()
            self.embedding = keras.layers.Embedding(11, 4)

        def call(self, x):
            x = self.embedding(x)
            return keras.ops.matmul(x, keras.ops.transpose(self.embedding.embeddings))

    return TiedEmbedding()


def _lora(name: str, shape, *arguments):
    def build(keras):
        layer = getattr(keras.layers, name)(*arguments)
        layer.build(shape)
        layer.enable_lora(2)
        # The second factor starts at zero, which would hide the first one's gradient.
        for weight in layer.trainable_weights:
            value = np.random.default_rng(0).normal(size=weight.shape)
            weight.assign(0.3 * value)
        return layer

    return build


def _frozen(keras):
    frozen = keras.layers.Dense(6, activation="tanh")
    frozen.trainable = False
    return _chain(lambda _: frozen, _layer("Dense", 3))(keras)


def _nested(keras):
    inner = keras.Sequential(
        [keras.layers.Dense(5, activation="tanh"), keras.layers.Dense(4)]
    )
    return _chain(lambda _: inner, _layer("Dense", 3))(keras)


def _two_branches(keras):
    left, right = keras.layers.Dense(4), keras.layers.Dense(4)
    return lambda x: keras.layers.Multiply()([left(x), right(x)])


def _masked(rnn: str):
    return _chain(
        _layer("Embedding", 11, 4, mask_zero=True), _layer(rnn, 3), _layer("Dense", 2)
    )


def _in_a_loop(keras):
    layer = keras.layers.Dense(5, activation="tanh")
    layer.build((None, 5))

    class Loop(keras.layers.Layer):
        """Applies the layer three times."""

        def __init__(self):
            super().__init__()
            self.layer = layer

        def call(self, x):
            return keras.ops.fori_loop(0, 3, lambda _, value: layer(value), x)

    return Loop()


def _after_embedding(*makers):
    return _chain(_layer("Embedding", 11, 4), *makers)


CASES: dict[str, Case] = {
    "Dense": Case(_layer("Dense", 5, activation="tanh"), (4,)),
    "Dense on sequences": Case(_layer("Dense", 5), (7, 4)),
    "EinsumDense": Case(_layer("EinsumDense", "abc,cd->abd", (None, 5)), (7, 4)),
    "EinsumDense, several outputs": Case(
        _layer("EinsumDense", "abc,cde->abde", (None, 2, 3), bias_axes="de"), (7, 4)
    ),
    "EinsumDense, shared axis": Case(
        _layer("EinsumDense", "abc,bcd->abd", (7, 5)), (7, 4)
    ),
    "Embedding": Case(_layer("Embedding", 11, 4), (6,), tokens=11),
    "ReversibleEmbedding (tied)": Case(_tied_embedding, (6,), tokens=11),
    "Conv1D": Case(_layer("Conv1D", 3, 3), (9, 2)),
    "Conv1D, causal, dilated": Case(
        _layer("Conv1D", 3, 3, padding="causal", dilation_rate=2), (9, 2)
    ),
    "Conv2D": Case(_layer("Conv2D", 3, 3, padding="same"), (6, 7, 2)),
    "Conv2D, strides": Case(
        _layer("Conv2D", 3, (3, 2), strides=2, padding="same"), (6, 7, 2)
    ),
    "Conv2D, dilated": Case(_layer("Conv2D", 3, 2, dilation_rate=2), (6, 7, 2)),
    "Conv2D, groups": Case(_layer("Conv2D", 6, 3, groups=2), (6, 7, 4)),
    "Conv3D": Case(_layer("Conv3D", 2, 2, padding="same"), (3, 4, 5, 2)),
    "Conv3D, groups": Case(_layer("Conv3D", 4, 2, groups=2), (3, 4, 5, 4)),
    "DepthwiseConv1D": Case(_layer("DepthwiseConv1D", 3, depth_multiplier=2), (9, 2)),
    "DepthwiseConv2D": Case(
        _layer("DepthwiseConv2D", 3, strides=2, depth_multiplier=2, padding="same"),
        (6, 7, 2),
    ),
    "DepthwiseConv2D, dilated": Case(
        _layer("DepthwiseConv2D", 2, dilation_rate=2), (6, 7, 2)
    ),
    "SeparableConv1D": Case(_layer("SeparableConv1D", 3, 3), (9, 2)),
    "SeparableConv2D": Case(_layer("SeparableConv2D", 3, 3), (6, 7, 2)),
    "Conv1DTranspose": Case(_layer("Conv1DTranspose", 3, 3, strides=2), (5, 2)),
    "Conv2DTranspose": Case(
        _layer("Conv2DTranspose", 3, 3, strides=2, padding="same"), (4, 5, 2)
    ),
    "Conv3DTranspose": Case(_layer("Conv3DTranspose", 2, 2, strides=2), (2, 3, 3, 2)),
    "LayerNormalization": Case(_layer("LayerNormalization"), (7, 4)),
    "GroupNormalization": Case(_layer("GroupNormalization", 2), (5, 6, 4)),
    "RMSNormalization": Case(_layer("RMSNormalization"), (7, 4)),
    "UnitNormalization": Case(
        _chain(_layer("Dense", 4), _layer("UnitNormalization")), (7, 4)
    ),
    "PReLU": Case(_layer("PReLU", alpha_initializer="ones"), (7, 4)),
    "PReLU, shared axes": Case(
        _layer("PReLU", shared_axes=[1, 2], alpha_initializer="ones"), (5, 6, 3)
    ),
    "MultiHeadAttention": Case(
        _attention("MultiHeadAttention", num_heads=2, key_dim=3), (5, 4)
    ),
    "GroupQueryAttention": Case(
        _attention(
            "GroupQueryAttention", head_dim=3, num_query_heads=4, num_key_value_heads=2
        ),
        (5, 4),
    ),
    "AdditiveAttention": Case(
        _chain(
            _layer("Dense", 4),
            lambda keras: lambda x: keras.layers.AdditiveAttention()([x, x]),
        ),
        (5, 4),
    ),
    "SimpleRNN": Case(_after_embedding(_layer("SimpleRNN", 3)), (6,), tokens=11),
    "LSTM": Case(_after_embedding(_layer("LSTM", 3)), (6,), tokens=11),
    "GRU": Case(_after_embedding(_layer("GRU", 3)), (6,), tokens=11),
    "LSTM, unrolled": Case(
        _after_embedding(_layer("LSTM", 3, unroll=True)), (6,), tokens=11
    ),
    "LSTM, masked": Case(_masked("LSTM"), (6,), tokens=11),
    "GRU, masked": Case(_masked("GRU"), (6,), tokens=11),
    "Bidirectional LSTM": Case(
        _chain(
            _layer("Embedding", 11, 4),
            lambda keras: keras.layers.Bidirectional(keras.layers.LSTM(3)),
        ),
        (6,),
        tokens=11,
    ),
    "LSTM, stacked": Case(
        _after_embedding(_layer("LSTM", 3, return_sequences=True), _layer("LSTM", 3)),
        (6,),
        tokens=11,
    ),
    "GRU, backwards, all outputs": Case(
        _layer("GRU", 3, go_backwards=True, return_sequences=True), (6, 4)
    ),
    "RNN of two cells": Case(
        lambda keras: keras.layers.RNN(
            [keras.layers.LSTMCell(3), keras.layers.GRUCell(2)]
        ),
        (6, 4),
    ),
    "ConvLSTM1D": Case(_layer("ConvLSTM1D", 2, 3), (3, 6, 2)),
    "ConvLSTM2D": Case(_layer("ConvLSTM2D", 2, 3, padding="same"), (3, 4, 5, 2)),
    "layer in a loop": Case(_in_a_loop, (5,)),
    "TimeDistributed": Case(
        lambda keras: keras.layers.TimeDistributed(keras.layers.Dense(3)), (5, 4)
    ),
    "TimeDistributed Conv2D": Case(
        lambda keras: keras.layers.TimeDistributed(keras.layers.Conv2D(3, 2)),
        (3, 4, 5, 2),
    ),
    "Bilinear product of two branches": Case(_two_branches, (4,)),
    "shared layer": Case(_shared, (5,)),
    "nested model": Case(_nested, (4,)),
    "frozen layer": Case(_frozen, (4,)),
    "Dense with LoRA": Case(_lora("Dense", (None, 4), 5), (4,)),
    "Dense with LoRA, on sequences": Case(_lora("Dense", (None, 7, 4), 5), (7, 4)),
    "EinsumDense with LoRA": Case(
        _lora("EinsumDense", (None, 7, 4), "abc,cd->abd", (None, 5)), (7, 4)
    ),
    "Embedding with LoRA": Case(_lora("Embedding", (None, 6), 11, 4), (6,), tokens=11),
    "Conv2D with LoRA": Case(_lora("Conv2D", (None, 6, 7, 2), 3, 3), (6, 7, 2)),
}


def per_example_losses(outputs):
    """One loss for each example, with a gradient that depends on everything."""
    import tensorflow as tf

    outputs = tf.reshape(outputs, [tf.shape(outputs)[0], -1])
    weights = tf.cos(tf.cast(tf.range(tf.shape(outputs)[1]), tf.float32))
    return tf.reduce_sum(weights * outputs + 0.3 * tf.square(outputs), axis=1)


def _functions(case: Case, rows: int | None = None, jit_compile: bool = False):
    """The clipped sum, the ordinary gradient, and the first by a tape per example.

    Args:
        case: The layer.
        rows: The size of the batch, if it is static.
        jit_compile: Whether XLA compiles the first two.
    """
    import tensorflow as tf

    from keras_dp_ext.bounding import L2Clip
    from keras_dp_ext.gradients import per_example_gradients

    model = case.model()
    variables = model.trainable_variables
    values = [variable.value for variable in variables]
    traced = tf.function(
        input_signature=[tf.TensorSpec([rows, *case.shape], case.inputs(1).dtype)],
        autograph=False,
        jit_compile=jit_compile,
    )

    @traced
    def run(x):
        losses = per_example_losses(model(x))
        return L2Clip(1.0).sum(per_example_gradients(losses, variables))

    @traced
    def plain(x):
        losses = per_example_losses(model(x))
        gradients = tf.gradients(losses, [value.handle for value in values])
        return [tf.convert_to_tensor(gradient) for gradient in gradients]

    def truth(x):
        total = [np.zeros(variable.shape) for variable in variables]
        for example in range(len(x)):
            with tf.GradientTape() as tape:
                losses = per_example_losses(model(x[example : example + 1]))
            rows = [
                tf.convert_to_tensor(g).numpy() for g in tape.gradient(losses, values)
            ]
            norm = np.sqrt(sum(np.sum(np.square(row, dtype=float)) for row in rows))
            for sum_, row in zip(total, rows, strict=True):
                sum_ += row * min(1.0, 1.0 / norm)
        return total

    return run, plain, truth


def _agree(computed, expected) -> bool:
    largest = max(np.abs(value).max() for value in expected)
    return all(
        np.allclose(a, b, rtol=1e-3, atol=1e-4 * largest)
        for a, b in zip(computed, expected, strict=True)
    )


def check(case: Case) -> dict:
    """Whether a layer is right, and by which way.

    Returns:
        `correct` and `rule`; `xla`: whether it is right when XLA compiles it, `None`
        where XLA cannot compile the ordinary gradient either.
    """
    import tensorflow as tf

    few = case.inputs(5)
    run, _, truth = _functions(case)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        computed = run(few)
    compiled, plain, compiled_truth = _functions(case, len(few), jit_compile=True)
    try:
        xla = _agree(compiled(few), compiled_truth(few))
    except tf.errors.OpError as error:
        print(error)
        xla = False
        try:
            plain(few)
        except tf.errors.OpError:
            xla = None
    return {
        "correct": _agree(computed, truth(few)),
        "xla": xla,
        "rule": not any("No fast per-example" in str(w.message) for w in caught),
    }


def ratio(
    case: Case, jit_compile: bool, batch: int = 64, rounds: int = 7
) -> float | None:
    """Processor time of the clipped sum over that of the ordinary gradient.

    Medians of interleaved rounds. For these tiny layers it shows overhead more than
    arithmetic. `None` where XLA compiles the clipped sum, but not the ordinary gradient.
    """
    import tensorflow as tf

    from benchmarks.workloads import timed

    rows = batch if jit_compile else None
    run, plain, _ = _functions(case, rows, jit_compile)
    x = tf.constant(case.inputs(batch))
    run(x)
    try:
        plain(x)
    except tf.errors.OpError:
        return None
    seconds = {run: [], plain: []}
    for _ in range(rounds):
        for function, found in seconds.items():
            found.append(timed(lambda f=function: f(x), 1)[0][1])
    return float(np.median(seconds[run]) / np.median(seconds[plain]))


_HEADER = """\
# Layers

Made by `python -m benchmarks.layers`; do not edit. Every layer below is part of a
small model, and its clipped sum of per-example gradients is compared with one
`GradientTape` for each example. `tests/gradients` does the same for norms, weighted
sums, element-wise bounds and microbatches.

- **way**: `rule`, read off the graph at once; or `fallback`, exact but one example at a
  time.
- **correct**, **XLA**: whether it is right, without and with `jit_compile=True`.
- **ratio**: processor time of the clipped sum over the ordinary gradient, batch of 64;
  **XLA ratio**: both compiled by XLA, on a CPU. The layers are tiny, so this is overhead
  more than arithmetic; for real models see [performance](performance.md). A dash: not measured.

Layers without trainable weights need no rule. BatchNormalization mixes examples, and
is refused with an error.

| layer | way | correct | XLA | ratio | XLA ratio |
|---|---|---|---|---|---|
"""
_ANSWER = {True: "yes", False: "**no**", None: "neither can plain Keras"}


def table(results: dict[str, dict]) -> str:
    def shown(number: float | None) -> str:
        return "-" if number is None else f"{number:.1f}"

    lines = [
        f"| {name} | {'rule' if row['rule'] else 'fallback'} | "
        f"{_ANSWER[row['correct']]} | {_ANSWER[row['xla']]} | "
        f"{shown(row['ratio'])} | {shown(row['xla_ratio'])} |"
        for name, row in results.items()
    ]
    return _HEADER + "\n".join(lines) + "\n"


def ratios_of(path: str) -> dict[str, dict[str, float | None]]:
    """The ratios of a table that was made before, by layer."""
    ratios = {}
    columns: list[str] = []
    for line in Path(path).read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells[:1] == ["layer"]:
            columns = cells
        elif columns and cells and cells[0] in CASES:
            row = dict(zip(columns, cells, strict=True))
            ratios[cells[0]] = {
                key: None if row.get(column, "-") == "-" else float(row[column])
                for key, column in (("ratio", "ratio"), ("xla_ratio", "XLA ratio"))
            }
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", help="names, separated by semicolons")
    parser.add_argument("--output", metavar="PATH", help="where to write the table")
    parser.add_argument(
        "--keep-ratios",
        action="store_true",
        help="take the ratios from the table at --output instead of measuring them",
    )
    arguments = parser.parse_args()
    names = arguments.layers.split(";") if arguments.layers else CASES
    kept = ratios_of(arguments.output) if arguments.keep_ratios else None
    results = {}
    for name in names:
        case = CASES[name]
        row = results[name] = check(case)
        if kept is not None:
            row |= kept.get(name, {"ratio": None, "xla_ratio": None})
        else:
            row["ratio"] = ratio(case, jit_compile=False)
            row["xla_ratio"] = ratio(case, jit_compile=True) if row["xla"] else None
        print(name, row, flush=True)
    if arguments.output:
        Path(arguments.output).write_text(table(results))
    if not all(row["correct"] and row["xla"] is not False for row in results.values()):
        raise SystemExit("Some layers are wrong.")


if __name__ == "__main__":
    main()
