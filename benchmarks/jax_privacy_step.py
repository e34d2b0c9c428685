"""A training step of JAX-Privacy, timed on demand for `step_time.py`.

Runs with the interpreter of an environment that has jax-privacy, not TensorFlow;
answers as `tf_privacy_step.py` does. Its clipped gradients are those of one example at
a time under `vmap`; "jax-microbatched" takes a quarter of the batch at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

import jax
import jax_privacy
import numpy as np
import optax
from jax import numpy as jnp
from jax_privacy import noise_addition

from benchmarks.workloads import WORKLOADS, answer_on_demand

CLIP, NOISE = 1.0, 1.1

# A layer: what makes its parameters, and what applies them.
Layer = tuple[Callable[[np.random.Generator], list], Callable]


def _weights(shape: Sequence[int]) -> Callable[[np.random.Generator], list]:
    def make(generator: np.random.Generator) -> list:
        scale = np.prod(shape[:-1]) ** -0.5
        kernel = scale * generator.standard_normal(shape)
        return [jnp.asarray(kernel, jnp.float32), jnp.zeros(shape[-1])]

    return make


def _dense(inputs: int, outputs: int) -> Layer:
    return _weights([inputs, outputs]), lambda p, x: x @ p[0] + p[1]


def _conv(
    inputs: int, outputs: int, size: int, stride: int, padding: str, bias: bool = True
) -> Layer:
    make = _weights([size, size, inputs, outputs])

    def apply(p: list, x: jax.Array) -> jax.Array:
        y = jax.lax.conv_general_dilated(
            x,
            p[0],
            (stride, stride),
            padding,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return y + p[1] if bias else y

    return (make if bias else lambda generator: make(generator)[:1]), apply


def _pool(stride: int) -> Layer:
    window = 1, 2, 2, 1
    strides = 1, stride, stride, 1

    def apply(_: list, x: jax.Array) -> jax.Array:
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, "VALID")

    return lambda _: [], apply


_RELU: Layer = (lambda _: [], lambda _, x: jax.nn.relu(x))
_FLATTEN: Layer = (lambda _: [], lambda _, x: x.reshape(x.shape[0], -1))


def _cifar_blocks() -> list[Layer]:
    blocks, inputs = [], 3
    for width in (32, 64, 128):
        blocks += [_conv(inputs, width, 3, 1, "SAME"), _RELU]
        blocks += [_conv(width, width, 3, 1, "SAME"), _RELU, _pool(2)]
        inputs = width
    return blocks


def _normalize(channels: int, groups: int = 16) -> Layer:
    """Group normalisation and ReLU."""

    def apply(p: list, x: jax.Array) -> jax.Array:
        parts = x.reshape(*x.shape[:3], groups, channels // groups)
        mean = parts.mean((1, 2, 4), keepdims=True)
        variance = parts.var((1, 2, 4), keepdims=True)
        parts = (parts - mean) * jax.lax.rsqrt(variance + 1e-3)
        return jax.nn.relu(parts.reshape(x.shape) * p[0] + p[1])

    return lambda _: [jnp.ones(channels), jnp.zeros(channels)], apply


def _block(inputs: int, width: int, stride: int, first: bool) -> Layer:
    layers = [
        _normalize(inputs),
        _conv(inputs, width, 3, stride, "SAME", bias=False),
        _normalize(width),
        _conv(width, width, 3, 1, "SAME", bias=False),
    ]
    if first:
        layers.append(_conv(inputs, width, 1, stride, "SAME", bias=False))

    def apply(p: list, x: jax.Array) -> jax.Array:
        normalized = layers[0][1](p[0], x)
        inner = normalized
        for (_, layer), own in zip(layers[1:4], p[1:4], strict=True):
            inner = layer(own, inner)
        return inner + (layers[4][1](p[4], normalized) if first else x)

    return lambda generator: [make(generator) for make, _ in layers], apply


def _wide_resnet() -> list[Layer]:
    """WideResNet-16-4 with group normalisation, as `workloads.py` has it."""
    blocks, inputs = [_conv(3, 16, 3, 1, "SAME", bias=False)], 16
    for width, stride in ((64, 1), (128, 2), (256, 2)):
        blocks += [_block(inputs, width, stride, True), _block(width, width, 1, False)]
        inputs = width
    mean = (lambda _: [], lambda _, x: x.mean((1, 2)))
    return [*blocks, _normalize(inputs), mean, _dense(inputs, 10)]


MODELS = {
    "W6": _wide_resnet,
    "W1": lambda: [
        _conv(1, 16, 8, 2, "SAME"),
        _RELU,
        _pool(1),
        _conv(16, 32, 4, 2, "VALID"),
        _RELU,
        _pool(1),
        _FLATTEN,
        _dense(512, 32),
        _RELU,
        _dense(32, 10),
    ],
    "W2": lambda: [_dense(784, 1000), _RELU, _dense(1000, 10)],
    "W3": lambda: [
        *_cifar_blocks(),
        _FLATTEN,
        _dense(2048, 128),
        _RELU,
        _dense(128, 10),
    ],
}


def make_step(name: str, workload_name: str) -> Callable[[], None]:
    workload = WORKLOADS[workload_name]
    batch_size = workload.batch_size
    x, y = map(jnp.asarray, workload.batch())
    layers = MODELS[workload_name]()
    generator = np.random.default_rng(0)
    parameters = [make(generator) for make, _ in layers]

    def loss(parameters: list, x: jax.Array, y: jax.Array) -> jax.Array:
        for (_, apply), own in zip(layers, parameters, strict=True):
            x = apply(own, x)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(x, y))

    privatizer = noise_addition.gaussian_privatizer(
        stddev=NOISE * CLIP / batch_size, prng_key=0
    )
    optimizer = optax.sgd(0.01)
    if name == "jax-plain":
        gradient = jax.grad(loss)
    else:
        gradient = jax_privacy.clipped_grad(
            loss,
            l2_clip_norm=CLIP,
            normalize_by=batch_size,
            batch_argnums=(1, 2),
            microbatch_size=batch_size // 4 if name == "jax-microbatched" else None,
        )

    @jax.jit
    def update(parameters: list, noise: tuple, state: tuple) -> tuple:
        found = gradient(parameters, x, y)
        if name != "jax-plain":
            found, noise = privatizer.update(found, noise)
        changes, state = optimizer.update(found, state)
        return optax.apply_updates(parameters, changes), noise, state

    held = [(parameters, privatizer.init(parameters), optimizer.init(parameters))]

    def step() -> None:
        held[0] = jax.block_until_ready(update(*held[0]))

    return step


if __name__ == "__main__":
    answer_on_demand(make_step(*sys.argv[1:3]))
