"""The models W1 to W7 and the optimizers that all benchmarks measure."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Workload:
    """A model, and one batch of made-up data for it.

    Attributes:
        description: One line for tables.
        batch_size: Examples in a batch; one example to a microbatch.
        input_shape: Of one example.
        classes: Number of classes.
        build: `build(keras) -> model`, for Keras 3 and for the Keras 2 that
            TensorFlow Privacy needs alike.
        vocabulary: Number of tokens, if inputs are tokens.
        sequential: Whether the model is a plain stack of layers.
    """

    description: str
    batch_size: int
    input_shape: tuple[int, ...]
    classes: int
    build: Callable[[Any], Any]
    vocabulary: int | None = None
    sequential: bool = True

    def batch(self, batch_size: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Inputs and labels of one batch."""
        generator = np.random.default_rng(0)
        shape = (batch_size or self.batch_size, *self.input_shape)
        if self.vocabulary is None:
            x = generator.random(shape, dtype=np.float32)
        else:
            x = generator.integers(0, self.vocabulary, shape).astype(np.int32)
        return x, generator.integers(0, self.classes, shape[0]).astype(np.int32)


def _mnist_layers(keras):
    layers = keras.layers
    return [
        keras.Input([28, 28, 1]),
        layers.Conv2D(16, 8, strides=2, padding="same", activation="relu"),
        layers.MaxPool2D(2, 1),
        layers.Conv2D(32, 4, strides=2, padding="valid", activation="relu"),
        layers.MaxPool2D(2, 1),
        layers.Flatten(),
        layers.Dense(32, activation="relu"),
        layers.Dense(10),
    ]


def mlp_layers(keras, hidden: int = 1000):
    """A single hidden layer between 784 inputs and 10 classes."""
    return [
        keras.Input([784]),
        keras.layers.Dense(hidden, activation="relu"),
        keras.layers.Dense(10),
    ]


def _cifar_layers(keras):
    layers = keras.layers
    stack = [keras.Input([32, 32, 3])]
    for width in (32, 64, 128):
        stack += [
            layers.Conv2D(width, 3, padding="same", activation="relu"),
            layers.Conv2D(width, 3, padding="same", activation="relu"),
            layers.MaxPool2D(2),
        ]
    return [
        *stack,
        layers.Flatten(),
        layers.Dense(128, activation="relu"),
        layers.Dense(10),
    ]


def _lstm_layers(keras):
    layers = keras.layers
    return [
        keras.Input([64], dtype="int32"),
        layers.Embedding(5000, 64),
        layers.LSTM(64),
        layers.Dense(2),
    ]


def _stack(layers: Callable) -> Callable:
    return lambda keras: keras.Sequential(layers(keras))


def _transformer(keras, width=128, heads=4, length=64, vocabulary=5000, blocks=2):
    layers = keras.layers
    tokens = keras.Input([length], dtype="int32")
    x = layers.Embedding(vocabulary, width)(tokens)
    for _ in range(blocks):
        attended = layers.MultiHeadAttention(heads, width // heads)(x, x)
        x = layers.LayerNormalization()(layers.Add()([x, attended]))
        wide = layers.Dense(4 * width, activation="gelu")(x)
        x = layers.LayerNormalization()(layers.Add()([x, layers.Dense(width)(wide)]))
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(tokens, layers.Dense(2)(x))


def _wide_resnet(keras, blocks=2, widening=4):
    """WideResNet-16-4 with group normalisation, as in private training."""
    layers = keras.layers

    def normalized(x):
        return layers.ReLU()(layers.GroupNormalization(16)(x))

    def convolved(x, width, kernel=3, strides=1):
        return layers.Conv2D(
            width, kernel, strides=strides, padding="same", use_bias=False
        )(x)

    image = keras.Input([32, 32, 3])
    x = convolved(image, 16)
    for width, strides in ((16, 1), (32, 2), (64, 2)):
        for block in range(blocks):
            inner = normalized(x)
            if block == 0:
                x = convolved(inner, widening * width, 1, strides)
                inner = convolved(inner, widening * width, 3, strides)
            else:
                inner = convolved(inner, widening * width)
            x = layers.Add()([x, convolved(normalized(inner), widening * width)])
    x = layers.GlobalAveragePooling2D()(normalized(x))
    return keras.Model(image, layers.Dense(10)(x))


def _lora_encoder(keras, rank=8):
    """A frozen BERT-like encoder; biases, the head and adapters of all matrices train."""
    model = _transformer(keras, width=256, heads=4, vocabulary=8000, blocks=4)
    layers = keras.layers
    for layer in model._flatten_layers():
        if isinstance(layer, (layers.Embedding, layers.LayerNormalization)):
            layer.trainable = False
        elif layer is not model.layers[-1] and hasattr(layer, "enable_lora"):
            layer.enable_lora(rank)
    return model


LAYERS = {
    "W1": _mnist_layers,
    "W2": mlp_layers,
    "W3": _cifar_layers,
    "W4": _lstm_layers,
}

WORKLOADS = {
    "W1": Workload(
        "TF-Privacy's MNIST tutorial CNN", 256, (28, 28, 1), 10, _stack(_mnist_layers)
    ),
    "W2": Workload("MLP 784-1000-10", 256, (784,), 10, _stack(mlp_layers)),
    "W3": Workload("CIFAR CNN", 128, (32, 32, 3), 10, _stack(_cifar_layers)),
    "W4": Workload(
        "Embedding + LSTM(64), length 64",
        64,
        (64,),
        2,
        _stack(_lstm_layers),
        vocabulary=5000,
    ),
    "W5": Workload(
        "two-block transformer encoder, width 128",
        64,
        (64,),
        2,
        _transformer,
        vocabulary=5000,
        sequential=False,
    ),
    "W6": Workload(
        "WideResNet-16-4", 32, (32, 32, 3), 10, _wide_resnet, sequential=False
    ),
    "W7": Workload(
        "four-block encoder, width 256, LoRA of rank 8",
        32,
        (64,),
        2,
        _lora_encoder,
        vocabulary=8000,
        sequential=False,
    ),
}

# The private mechanisms, by their names in tables.
# By name: the class of `keras_dp_ext.mechanisms`, and settings that are not defaults.
MECHANISMS = {
    "dpsgd": ("DPSGD", {}),
    "bandmf": ("BandMF", {"bands": 16}),
    "directional": ("Directional", {}),
    "uniform": ("Directional", {"direction": "uniform"}),
    "tanh": ("Tanh", {}),
    "encoding": ("Encoded", {}),
}


def make_optimizer(mechanism: str, batch_size: int, **further):
    """SGD: plain, or private by one of `MECHANISMS`, with further arguments."""
    import keras

    if mechanism == "plain":
        return keras.optimizers.SGD(0.01)
    from keras_dp_ext import mechanisms
    from keras_dp_ext.optimizers import make_private

    name, arguments = MECHANISMS[mechanism]
    arguments = {**arguments, **further}
    made = make_private(keras.optimizers.SGD, getattr(mechanisms, name))
    return made(learning_rate=0.01, expected_batch_size=batch_size, **arguments)


def make_step(
    workload: Workload,
    mechanism: str,
    jit_compile: bool | str = "auto",
    batch_size: int | None = None,
    steps_per_execution: int = 1,
    static_batch: bool = False,
    **optimizer_arguments,
) -> Callable[[], None]:
    """One training step as `model.fit` runs it, as a function of no arguments.

    The batch is a constant. Its size is not known when the step is traced, as in
    `fit` on arrays whose length it does not divide, unless `static_batch`.
    """
    import keras
    import tensorflow as tf

    batch_size = batch_size or workload.batch_size
    keras.utils.set_random_seed(0)
    model = workload.build(keras)
    model.compile(
        optimizer=make_optimizer(mechanism, batch_size, **optimizer_arguments),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=jit_compile,
        steps_per_execution=steps_per_execution,
    )
    if mechanism != "plain":
        model.optimizer.bind(model)  # `fit` would tell it.
    iterator = iter(repeated(workload.batch(batch_size), static_batch))
    model.make_train_function()

    def step():
        logs = model.train_function(iterator)
        tf.nest.map_structure(lambda value: value.numpy(), logs)

    step.model = model
    return step


def repeated(batch, static: bool = False):
    """An endless `tf.data.Dataset` of one batch, whose size TF knows or not.

    Args:
        batch: Arrays, in any structure.
        static: Whether TF knows the size.
    """
    import tensorflow as tf

    def forget_size(*arrays):
        return tf.nest.map_structure(
            lambda array: tf.compat.v1.placeholder_with_default(
                array, [None, *array.shape[1:]]
            ),
            arrays,
        )

    dataset = tf.data.Dataset.from_tensors(batch)
    if not static:
        dataset = dataset.map(forget_size)
    return dataset.cache().repeat()


def answer_on_demand(step: Callable[[], None]) -> None:
    """Serves `step_time.py` from a process of its own.

    Reads numbers of steps from the standard input, one a line, and answers each with
    the seconds of every step.
    """

    def answer(steps: int) -> None:
        print("seconds", json.dumps(timed(step, steps)), flush=True)

    answer(1)
    for line in sys.stdin:
        answer(int(line))


def timed(step: Callable[[], None], steps: int) -> list[tuple[float, float]]:
    """Seconds of each step: on the clock, and of all processors of this process."""
    seconds = []
    for _ in range(steps):
        clock, processors = time.perf_counter(), time.process_time()
        step()
        seconds.append((time.perf_counter() - clock, time.process_time() - processors))
    return seconds
