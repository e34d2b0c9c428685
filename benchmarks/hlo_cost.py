"""What a private step asks of an accelerator, counted in its compiled program.

XLA compiles the step, nothing is run. From the optimised program:

- *FLOPs* of products and convolutions, and one for each number that another
  arithmetic instruction makes;
- *bytes* that instructions read and write, a fused group counting as one, and what
  changes a part of a buffer in place as that part;
- *peak*: the buffers that XLA allocates for the step;
- *instructions* of the program before it is optimised, on which the time to compile it
  depends.

All are those of the private step over the plain one. They do not depend on the
machine's speed; how instructions are fused depends on the target, which is a CPU here.

    python -m benchmarks.hlo_cost
    python -m benchmarks.hlo_cost --workloads W1,W3 --batch-sizes 64 --json
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from benchmarks.workloads import WORKLOADS, make_optimizer

# They move no data, or are counted where they are used.
_FREE = frozenset(
    {
        "after-all",
        "bitcast",
        "call",
        "conditional",
        "constant",
        "get-tuple-element",
        "parameter",
        "partition-id",
        "tuple",
        "while",
    }
)
_DATA_MOVEMENT = frozenset(
    {
        "broadcast",
        "concatenate",
        "copy",
        "dynamic-slice",
        "dynamic-update-slice",
        "fusion",
        "gather",
        "iota",
        "pad",
        "reshape",
        "reverse",
        "scatter",
        "slice",
        "transpose",
    }
)
_PRED = 1  # `xla.PrimitiveType`, as the keys below.
_ELEMENT_BYTES = {_PRED: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 2, 8: 4, 9: 8}
_ELEMENT_BYTES |= {10: 2, 11: 4, 12: 8, 15: 8, 16: 2, 18: 16}


@dataclasses.dataclass(frozen=True)
class Cost:
    """FLOPs, bytes and buffer bytes of one execution of a program, and its length."""

    flops: float
    bytes: float
    peak: float
    instructions: float

    def over(self, other: Cost) -> Cost:
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Cost(*(mine / its for mine, its in pairs))


def program_cost(compiled: Callable[..., Any]) -> Cost:
    """The cost of a program.

    Args:
        compiled: What `tf.function(...).experimental_get_compiler_ir(...)` returns.
    """
    from tensorflow.compiler.xla.service import hlo_pb2

    serialized = compiled(stage="optimized_hlo_proto_serialized")
    program = hlo_pb2.HloProto.FromString(serialized)
    module = program.hlo_module
    # The serialized form leaves the values of constants out.
    has_loops = any(
        i.opcode == "while" for c in module.computations for i in c.instructions
    )
    text = compiled(stage="optimized_hlo") if has_loops else ""
    constants = {
        name: int(value)
        for name, value in re.findall(r"%(\S+) = [su]\d+\[\] constant\((\d+)\)", text)
    }
    counter = _Counter({c.id: c for c in module.computations}, constants)
    flops, moved = counter.computation(module.entry_computation_id)
    allocations = program.buffer_assignment.buffer_allocations
    peak = sum(allocation.size for allocation in allocations)
    instructions = len(re.findall(r"^\s.* = ", compiled(stage="hlo"), re.MULTILINE))
    return Cost(flops, moved, peak, instructions)


class _Counter:
    """Adds up instructions, those of a loop as often as it runs."""

    def __init__(self, computations: dict, constants: dict[str, int]):
        self._computations = computations
        self._constant = constants
        self._by_id = {
            instruction.id: instruction
            for computation in computations.values()
            for instruction in computation.instructions
        }

    def computation(self, number: int) -> tuple[float, float]:
        """FLOPs and bytes of a computation whose instructions run one by one."""
        flops = moved = 0.0
        for instruction in self._computations[number].instructions:
            more_flops, more_bytes = self._instruction(instruction)
            flops += more_flops
            moved += more_bytes
        return flops, moved

    def _instruction(self, instruction) -> tuple[float, float]:
        kind = instruction.opcode
        if kind in ("while", "call", "conditional"):
            times = self._trip_count(instruction) if kind == "while" else 1
            inside = map(self.computation, instruction.called_computation_ids)
            flops, moved = map(sum, zip(*inside, strict=True))
            return times * flops, times * moved
        if kind == "fusion":
            (number,) = instruction.called_computation_ids
            return self._fused_flops(number), self._fused_bytes(instruction, number)
        moved = 0 if kind in _FREE else self._plain_bytes(instruction)
        return self._flops(instruction), moved

    def _trip_count(self, loop) -> int:
        """How often a loop runs that counts up from 0, as all of TensorFlow's do."""
        config = json.loads(loop.backend_config or b"{}")
        if "known_trip_count" in config:
            return int(config["known_trip_count"]["n"])
        # With a condition of two parts XLA does not tell: the lower bound ends it.
        (condition,) = (
            number
            for number in loop.called_computation_ids
            if self._root(number).shape.element_type == _PRED
        )
        bounds = [*self._constants(condition)]
        # A loop for gradients ends with the count of steps of the loop before it.
        start = self._by_id[loop.operand_ids[0]]
        for instruction in self._computations[condition].instructions:
            if instruction.opcode == "get-tuple-element" and start.opcode == "tuple":
                given = self._by_id[start.operand_ids[instruction.tuple_index]]
                while given.opcode in ("copy", "get-tuple-element", "bitcast"):
                    given = self._by_id[given.operand_ids[0]]
                if given.opcode == "while":
                    bounds.append(self._trip_count(given))
        if not bounds:
            raise ValueError(
                f"How often the loop `{loop.name}` runs is not known before it has run."
            )
        return min(bounds)

    def _root(self, number: int):
        return self._by_id[self._computations[number].root_id]

    def _constants(self, number: int) -> Iterator[int]:
        """The positive integers in a computation, and in those that it calls."""
        for instruction in self._computations[number].instructions:
            if self._constant.get(instruction.name, 0) > 0:
                yield self._constant[instruction.name]
            for called in instruction.called_computation_ids:
                yield from self._constants(called)

    def _fused_flops(self, number: int) -> float:
        total = 0.0
        for instruction in self._computations[number].instructions:
            if instruction.opcode == "fusion":
                total += self._fused_flops(instruction.called_computation_ids[0])
            else:
                total += self._flops(instruction)
        return total

    def _flops(self, instruction) -> float:
        kind = instruction.opcode
        made = _elements(instruction.shape)
        if kind in _FREE or kind in _DATA_MOVEMENT:
            return 0.0
        operands = [self._by_id[number].shape for number in instruction.operand_ids]
        if kind == "dot":
            axes = instruction.dot_dimension_numbers.lhs_contracting_dimensions
            return 2.0 * made * math.prod(operands[0].dimensions[a] for a in axes)
        if kind == "convolution":
            numbers = instruction.convolution_dimension_numbers
            inputs = operands[1].dimensions[numbers.kernel_input_feature_dimension]
            return 2.0 * made * inputs * _taps(instruction, operands)
        if kind.startswith("reduce"):
            return float(_elements(operands[0]))
        return float(made)

    def _plain_bytes(self, instruction) -> float:
        operands = [self._by_id[number].shape for number in instruction.operand_ids]
        if instruction.opcode == "dynamic-update-slice":
            return 2.0 * _bytes(operands[1])
        if instruction.opcode == "scatter":
            return float(_bytes(operands[1]) + 3 * _bytes(operands[2]))
        if instruction.opcode in ("dynamic-slice", "slice", "gather"):
            return 2.0 * _bytes(instruction.shape)
        return float(_bytes(instruction.shape) + sum(map(_bytes, operands)))

    def _fused_bytes(self, fusion, number: int) -> float:
        """What a fused group reads and writes; a slice of a buffer counts as such."""
        computation = self._computations[number]
        users: dict[int, list] = {}
        for instruction in computation.instructions:
            for position, operand in enumerate(instruction.operand_ids):
                users.setdefault(operand, []).append((instruction, position))
        total = 0.0
        for instruction in computation.instructions:
            if instruction.opcode == "parameter":
                total += self._read_bytes(instruction, users)
        root = self._by_id[computation.root_id]
        roots = [root]
        if root.opcode == "tuple":
            roots = [self._by_id[operand] for operand in root.operand_ids]
        for made in roots:
            while made.opcode == "bitcast":
                made = self._by_id[made.operand_ids[0]]
            if made.opcode == "dynamic-update-slice":
                made = self._by_id[made.operand_ids[1]]
            elif made.opcode == "scatter":
                made = self._by_id[made.operand_ids[2]]
            total += _bytes(made.shape)
        return total

    def _read_bytes(self, value, users: dict[int, list]) -> float:
        """How much of a value its users inside of a fused group look at."""
        whole = float(_bytes(value.shape))
        total = 0.0
        for instruction, position in users.get(value.id, []):
            if instruction.opcode in ("dynamic-slice", "slice") and position == 0:
                total += _bytes(instruction.shape)
            elif instruction.opcode == "dynamic-update-slice" and position == 0:
                continue
            elif instruction.opcode == "scatter" and position == 0:
                total += _bytes(self._by_id[instruction.operand_ids[2]].shape)
            elif instruction.opcode in ("bitcast", "reshape"):
                total += self._read_bytes(instruction, users)
            else:
                return whole
        return min(total, whole)


def _taps(instruction, operands) -> float:
    """How many taps of a window meet data, on average.

    Of a window as large as a padded image, which is how the gradient of a filter is
    computed, many taps lie in the padding; in dilated data they meet zeros.
    """
    total = 1.0
    data = operands[0]
    axes = instruction.convolution_dimension_numbers.input_spatial_dimensions
    made = instruction.convolution_dimension_numbers.output_spatial_dimensions
    for axis, out, window in zip(
        axes, made, instruction.window.dimensions, strict=True
    ):
        size = data.dimensions[axis]
        positions = instruction.shape.dimensions[out]
        stretched = (size - 1) * window.base_dilation + 1
        met = 0
        for position in range(positions):
            start = position * window.stride - window.padding_low
            for tap in range(window.size):
                place = start + tap * window.window_dilation
                if 0 <= place < stretched and place % window.base_dilation == 0:
                    met += 1
        total *= met / positions
    return total


def _elements(shape) -> int:
    if shape.tuple_shapes:
        return sum(map(_elements, shape.tuple_shapes))
    return math.prod(shape.dimensions)


def _bytes(shape) -> int:
    if shape.tuple_shapes:
        return sum(map(_bytes, shape.tuple_shapes))
    return math.prod(shape.dimensions) * _ELEMENT_BYTES.get(shape.element_type, 0)


def step_cost(build: Callable, batch, mechanism: str) -> Cost:
    """Compiles one training step, without running it.

    Args:
        build: `build(keras) -> model`.
        batch: Inputs and labels.
        mechanism: "plain", or one of `benchmarks.workloads.MECHANISMS`.
    """
    import keras
    import tensorflow as tf

    from keras_dp_ext.gradients.rules.device import as_on_a_gpu

    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    model = build(keras)
    optimizer = make_optimizer(mechanism, len(batch[0]))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=True)
    optimizer.build(model.trainable_variables)
    if mechanism != "plain":
        optimizer.bind(model)
    step = tf.function(
        lambda x, y: model.train_step((x, y)), jit_compile=True, autograph=False
    )
    # As for a GPU: on CPUs alone, loops keep XLA from fusing one draw into each kernel.
    with as_on_a_gpu():
        program = step.experimental_get_compiler_ir(*map(tf.constant, batch))
        return program_cost(program)


def wide_resnet(keras, width: int = 4, classes: int = 10):
    """WideResNet-16-4 for 32 x 32 images, with GroupNormalization."""
    layers = keras.layers

    def normalized(x):
        return layers.Activation("relu")(layers.GroupNormalization(16)(x))

    inputs = keras.Input([32, 32, 3])
    x = layers.Conv2D(16, 3, padding="same", use_bias=False)(inputs)
    for stage, filters in enumerate((16 * width, 32 * width, 64 * width)):
        for block in range(2):
            strides = 2 if stage and not block else 1
            active = normalized(x)
            shortcut = x
            if x.shape[-1] != filters or strides > 1:
                shortcut = layers.Conv2D(filters, 1, strides=strides, use_bias=False)(
                    active
                )
            y = layers.Conv2D(
                filters, 3, strides=strides, padding="same", use_bias=False
            )(active)
            y = layers.Conv2D(filters, 3, padding="same", use_bias=False)(normalized(y))
            x = layers.Add()([shortcut, y])
    x = layers.GlobalAveragePooling2D()(normalized(x))
    return keras.Model(inputs, layers.Dense(classes)(x))


def _models() -> dict[str, tuple]:
    counted = ("W1", "W2", "W3", "W4", "W5")
    models = {name: (WORKLOADS[name].build, WORKLOADS[name].batch) for name in counted}
    # Images as those of W3.
    models["WRN-16-4"] = (wide_resnet, WORKLOADS["W3"].batch)
    return models


def measure(name: str, batch_size: int, mechanism: str = "dpsgd") -> dict:
    """The cost of a private step, of a plain one, and the ratios."""
    build, batch = _models()[name]
    data = batch(batch_size)
    plain = step_cost(build, data, "plain")
    private = step_cost(build, data, mechanism)
    return {
        "model": name,
        "batch_size": batch_size,
        "mechanism": mechanism,
        "plain": dataclasses.asdict(plain),
        "private": dataclasses.asdict(private),
        "ratio": dataclasses.asdict(private.over(plain)),
    }


def table(results: Iterable[dict]) -> str:
    lines = [
        "| model | batch | FLOPs | bytes | peak | instructions |",
        "|---|---|---|---|---|---|",
    ]
    for row in results:
        ratio = row["ratio"]
        lines.append(
            f"| {row['model']} | {row['batch_size']} | {ratio['flops']:.2f} | "
            f"{ratio['bytes']:.2f} | {ratio['peak']:.2f} | "
            f"{ratio['instructions']:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", default=",".join(_models()))
    parser.add_argument("--batch-sizes", default="64,256")
    parser.add_argument("--mechanism", default="dpsgd")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    results = []
    for name in arguments.workloads.split(","):
        for size in arguments.batch_sizes.split(","):
            results.append(measure(name, int(size), arguments.mechanism))
            if not arguments.json:
                print(name, size, results[-1]["ratio"], flush=True)
    print(json.dumps(results, indent=2) if arguments.json else table(results))


if __name__ == "__main__":
    main()
