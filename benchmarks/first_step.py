"""How long the first step of `fit` takes: tracing, verification, compilation.

Every measurement is a fresh process, and plain Keras takes turns with each
mechanism. Processor seconds do not depend on what else the machine does, so the
goal (2.5 times plain Keras plus 1.5 s) is judged by them.

    python -m benchmarks.first_step --models W1,bert-12 --mechanisms dpsgd --json out.json
    python -m benchmarks.first_step --models all --json first_step.json

`resnet50:static` is a batch of known size, `W1:xla` compiles the step. A second call with
the same file measures only what is not in it yet: a long table can be made in pieces.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.workloads import MECHANISMS, WORKLOADS, make_optimizer

FACTOR, OFFSET = 2.5, 1.5
FOUR = ["dpsgd", "directional", "tanh", "encoding"]

_IMAGES, _TOKENS = ((32, 32, 3), None), ((64,), 5000)


def _workload(name: str):
    def build():
        import keras

        return WORKLOADS[name].build(keras)

    workload = WORKLOADS[name]
    return build, (workload.input_shape, workload.vocabulary)


def _resnet18():
    from benchmarks.models import resnet18

    return resnet18()


def _resnet50():
    import keras

    model = keras.applications.ResNet50(
        weights=None, input_shape=(32, 32, 3), classes=10, classifier_activation=None
    )
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.trainable = False
    return model


def _convnext():
    import keras

    return keras.applications.ConvNeXtTiny(
        weights=None, input_shape=(32, 32, 3), classes=10, classifier_activation=None
    )


def _wide_resnet(**arguments) -> Callable:
    def build():
        from benchmarks.models.wide_resnet import wide_resnet

        return wide_resnet(**arguments)

    return build


def _transformer(name: str, depth: int, **arguments) -> Callable:
    def build():
        from benchmarks.models import transformers

        return getattr(transformers, name)(depth, **arguments)

    return build


def _lstm():
    import keras

    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input([64], dtype="int32"),
            layers.Embedding(5000, 64),
            layers.LSTM(64, return_sequences=True),
            layers.LSTM(64),
            layers.Dense(2),
        ]
    )


# By name: what builds the model; shape of an example and number of tokens.
MODELS: dict[str, tuple[Callable, tuple]] = {
    **{name: _workload(name) for name in WORKLOADS},
    "resnet18": (_resnet18, _IMAGES),
    "resnet50": (_resnet50, _IMAGES),
    "convnext-tiny": (_convnext, _IMAGES),
    "wrn-16-4": (_wide_resnet(), _IMAGES),
    "wrn-16-4-ws": (_wide_resnet(standardized=True), _IMAGES),
    "wrn-28-1-ws": (_wide_resnet(depth=28, width=1, standardized=True), _IMAGES),
    **{f"bert-{n}": (_transformer("bert", n), _TOKENS) for n in (2, 6, 12, 24)},
    "bert-6-dropout": (_transformer("bert", 6, dropout=0.1), _TOKENS),
    "gpt-12": (_transformer("gpt", 12), _TOKENS),
    "vit-8": (_transformer("vit", 8), ((72, 72, 3), None)),
    "lstm-2": (_lstm, _TOKENS),
}

# What no goal is set for.
_BESIDE = ("W6", "W7", "convnext-tiny", "wrn-28-1-ws", "bert-6-dropout")

DEFAULT = [name for name in MODELS if name not in _BESIDE]

# The whole table of docs/performance.md; about half an hour for each round.
ALL = [
    *DEFAULT,
    "convnext-tiny",
    "bert-6-dropout",
    "resnet18:static",
    "resnet50:static",
    "wrn-16-4-ws:static",
    "W1:xla",
    "bert-2:xla",
]


def first_fit(name: str, mechanism: str, batch_size: int, is_static: bool, jit):
    """A function that makes the first step of `fit`; everything else is done."""
    import keras
    import tensorflow as tf

    build, (shape, vocabulary) = MODELS[name]
    generator = np.random.default_rng(0)
    keras.utils.set_random_seed(0)
    model = build()
    if vocabulary is None:
        x = generator.random((batch_size, *shape), dtype=np.float32)
    else:
        x = generator.integers(0, vocabulary, (batch_size, *shape)).astype(np.int32)
    y = generator.integers(0, 2, batch_size).astype(np.int32)
    model.compile(
        make_optimizer(mechanism, batch_size),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=jit,
    )
    data = tf.data.Dataset.from_tensor_slices((x, y))
    data = data.batch(batch_size, drop_remainder=is_static)
    return lambda: model.fit(data, steps_per_epoch=1, verbose=0)


def measure(arguments) -> dict[str, float]:
    """In this process: seconds of the first step and, for what it costs, a second."""
    name, _, setting = arguments.models[0].partition(":")
    fit = first_fit(
        name,
        arguments.mechanisms[0],
        arguments.batch_size,
        arguments.static or setting == "static",
        True if arguments.jit or setting == "xla" else "auto",
    )
    seconds = {}
    for number in ("first", "second"):
        clock, processors = time.perf_counter(), time.process_time()
        fit()
        seconds[f"{number}_wall"] = time.perf_counter() - clock
        seconds[f"{number}_cpu"] = time.process_time() - processors
    return seconds


def measure_apart(model: str, mechanism: str, arguments) -> dict[str, float]:
    """The same in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.first_step", "--here"]
    command += ["--models", model, "--mechanisms", mechanism]
    command += ["--batch-size", str(arguments.batch_size)]
    command += ["--static"] * arguments.static + ["--jit"] * arguments.jit
    done = subprocess.run(
        command,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def table(results: dict) -> str:
    """Medians of processor seconds (wall clock in brackets); bold within the goal."""
    found = {name for by_mechanism in results.values() for name in by_mechanism}
    mechanisms = [name for name in ("plain", *MECHANISMS) if name in found]
    lines = [
        "| model | " + " | ".join(mechanisms) + " | allowed |",
        "|---" * (len(mechanisms) + 2) + "|",
    ]
    for model, by_mechanism in results.items():
        plain = _median(by_mechanism["plain"], "first_cpu")
        allowed = FACTOR * plain + OFFSET
        cells = []
        for mechanism in mechanisms:
            if not by_mechanism.get(mechanism):
                cells.append("")
                continue
            cpu = _median(by_mechanism[mechanism], "first_cpu")
            wall = _median(by_mechanism[mechanism], "first_wall")
            mark = "**" if mechanism != "plain" and cpu <= allowed else ""
            cells.append(f"{mark}{cpu:.1f}{mark} ({wall:.1f})")
        lines.append(f"| {model} | " + " | ".join(cells) + f" | {allowed:.1f} |")
    return "\n".join(lines)


def _median(measurements, what: str) -> float:
    return float(np.median([one[what] for one in measurements]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument(
        "--models", type=names, default=DEFAULT, help='names, or "all" for the table'
    )
    parser.add_argument("--mechanisms", type=names, default=FOUR)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--static", action="store_true", help="a static batch")
    parser.add_argument("--jit", action="store_true", help="compile with XLA")
    parser.add_argument("--json", type=Path, help="where to write the measurements")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.here:
        print(json.dumps(measure(arguments)))
        return
    models = ALL if arguments.models == ["all"] else arguments.models
    for name, _, setting in (model.partition(":") for model in models):
        if name not in MODELS or setting not in ("", "static", "xla"):
            parser.error(f"--models must be of {[*MODELS]}. Received: {name}:{setting}")
    variants = ["plain", *arguments.mechanisms]
    results = {}
    if arguments.json and arguments.json.exists():
        results = json.loads(arguments.json.read_text())
    for number in range(arguments.rounds):
        for model in models:
            for variant in variants:
                found = results.setdefault(model, {}).setdefault(variant, [])
                if len(found) > number:
                    continue
                one = measure_apart(model, variant, arguments)
                found.append(one)
                print(model, variant, f"{one['first_cpu']:.2f}", file=sys.stderr)
                if arguments.json:
                    arguments.json.write_text(json.dumps(results, indent=1))
    print(table(results))


if __name__ == "__main__":
    main()
