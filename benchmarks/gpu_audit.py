"""Which ops of a training step have no place on a GPU, read off the kernel registry.

No GPU is needed: TensorFlow's Linux wheel is built for CUDA, and which kernels it
registered can be read on any machine. The step is traced as for a GPU without XLA
(the path of `tf.distribute`), and each op, also inside loops and functions, is looked
up by its types:

- *no kernel*: the op runs on the host, and its data goes there and back;
- *crosses*: the GPU's kernel wants an argument of more than a few numbers in the
  host's memory (32-bit integers, mostly).

Scalars, shapes and seeds live on the host in any TensorFlow program and are not
listed. Plain training is audited beside it: kinds of ops that it takes to the host
itself (index arithmetic of embeddings, sums of shapes) do not count.

    python -m benchmarks.gpu_audit
    python -m benchmarks.gpu_audit --workloads W1 --settings dpsgd,encoding --json
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import json
from collections.abc import Iterable, Iterator

from benchmarks.workloads import WORKLOADS, make_optimizer

# Beyond shapes, seeds and keys: what counts as data.
FEW = 64

# By name: mechanism of `benchmarks.workloads`, and further arguments.
SETTINGS = {
    "dpsgd": ("dpsgd", {}),
    "dpsgd, secure noise": ("dpsgd", {"secure_noise": True}),
    "dpsgd, microbatches": ("dpsgd", {"num_microbatches": 16}),
    "dpsgd, accumulation": ("dpsgd", {"gradient_accumulation_steps": 4}),
    "tanh": ("tanh", {}),
    "directional": ("directional", {}),
    "directional, pruning": ("directional", {"pruning_ratio": 0.9}),
    "uniform": ("uniform", {}),
    "encoding": ("encoding", {"denoise": None}),
    "encoding, KS denoising": ("encoding", {"denoise": "ks"}),
    "encoding, secure noise": ("encoding", {"secure_noise": True}),
}
# What size a microbatch has must be known beforehand.
NEEDS_STATIC_BATCH = frozenset({"dpsgd, microbatches"})
AUDITED = ("W1", "W2", "W3", "W4", "W5")

# They stand for values that come from elsewhere, or are replaced by their bodies.
_NO_KERNEL_NEEDED = frozenset(
    {
        "Placeholder",
        "NoOp",
        "PartitionedCall",
        "StatefulPartitionedCall",
        "While",
        "StatelessWhile",
        "If",
        "StatelessIf",
    }
)


@dataclasses.dataclass(frozen=True)
class Finding:
    """An op that takes data to the host.

    Attributes:
        op: Its type.
        dtype: Of the tensor.
        elements: How many numbers; `None` where the shape is not static.
        why: "no kernel", "crosses", or "no kernel of XLA".
        where: The name of one such op.
    """

    op: str
    dtype: str
    elements: int | None
    why: str
    where: str


def audit_graph(graph) -> list[Finding]:
    """All findings in a graph and in the functions that it calls."""
    findings = []
    for op, compiled in _all_ops(graph):
        if op.type not in _NO_KERNEL_NEEDED:
            findings.extend(_findings_of_compiled(op) if compiled else _findings(op))
    return findings


def _all_ops(graph) -> Iterator[tuple]:
    """Every op, and whether XLA compiles it: some functions ask for it."""
    from keras_dp_ext.gradients.graph.ops import called_graphs

    pending, seen = [(graph, False)], set()
    while pending:
        graph, compiled = pending.pop()
        if id(graph) in seen:
            continue
        seen.add(id(graph))
        for op in graph.get_operations():
            yield op, compiled
            inside = compiled or op.node_def.attr["_XlaMustCompile"].b
            pending.extend((called, inside) for called in called_graphs(op))


def _findings_of_compiled(op) -> Iterator[Finding]:
    """Compiled code stays on the device; it only has to be possible."""
    _register_kernels_of_xla()
    if op.outputs and _kernel(op, ["XLA_GPU_JIT"]) is None:
        yield _finding(op, op.outputs[0], "no kernel of XLA")


def _findings(op) -> Iterator[Finding]:
    kernel = _kernel(op, ["GPU", "DEFAULT"])
    named = [*_named(op, op.inputs, op.op_def.input_arg)]
    named += _named(op, op.outputs, op.op_def.output_arg)
    for name, tensor in named:
        if not _is_data(tensor):
            continue
        if kernel is None:
            yield _finding(op, tensor, "no kernel")
        elif name in kernel.host_memory_arg:
            yield _finding(op, tensor, "crosses")


def _finding(op, tensor, why: str) -> Finding:
    elements = tensor.shape.num_elements()
    return Finding(op.type, tensor.dtype.name, elements, why, op.name)


def _is_data(tensor) -> bool:
    import tensorflow as tf

    if tensor.dtype in (tf.resource, tf.variant, tf.string):
        return False
    if tf.get_static_value(tensor) is not None:
        return False  # Folded when the graph is optimised.
    elements = tensor.shape.num_elements()
    return elements is None or elements > FEW


def _named(op, tensors: Iterable, arguments) -> Iterator[tuple]:
    """Each tensor of an op with the name of its argument."""
    tensors = list(tensors)
    for argument in arguments:
        count = 1
        if argument.number_attr:
            count = op.get_attr(argument.number_attr)
        elif argument.type_list_attr:
            count = len(op.get_attr(argument.type_list_attr))
        for _ in range(count):
            if tensors:
                yield argument.name, tensors.pop(0)


@functools.cache
def _register_kernels_of_xla() -> None:
    """They are registered when something is compiled for the first time."""
    import tensorflow as tf

    tf.function(lambda: tf.zeros([]), jit_compile=True)()
    _registered.cache_clear()


@functools.cache
def _registered(op_type: str) -> tuple:
    from tensorflow.python.framework import kernels

    return tuple(kernels.get_registered_kernels_for_op(op_type).kernel)


def _kernel(op, devices: Iterable[str]):
    """The kernel that the first of the devices would run for an op, or `None`."""
    for device in devices:
        for kernel in _registered(op.type):
            if kernel.device_type == device and all(
                _allows(op, constraint) for constraint in kernel.constraint
            ):
                return kernel
    return None


def _allows(op, constraint) -> bool:
    value = op.node_def.attr[constraint.name]
    types = [value.type] if value.WhichOneof("value") == "type" else value.list.type
    allowed = constraint.allowed_values
    return all(found in (allowed.type, *allowed.list.type) for found in types)


def traced_step(workload: str, setting: str, static_batch: bool = False):
    """The graph of a training step as a GPU gets it without XLA.

    Args:
        workload: One of `benchmarks.workloads.WORKLOADS`.
        setting: One of `SETTINGS`, or "plain".
        static_batch: Whether the size of the batch is known when it is traced.
    """
    import keras
    import tensorflow as tf

    from keras_dp_ext.gradients.rules.device import as_on_a_gpu

    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    made = WORKLOADS[workload]
    mechanism, arguments = SETTINGS.get(setting, ("plain", {}))
    model = made.build(keras)
    optimizer = make_optimizer(mechanism, made.batch_size, **arguments)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, jit_compile=False)
    optimizer.build(model.trainable_variables)
    if mechanism != "plain":
        optimizer.bind(model)
    x, y = made.batch()
    step = tf.function(lambda x, y: model.train_step((x, y)), autograph=False)
    rows = made.batch_size if static_batch else None
    with as_on_a_gpu():
        concrete = step.get_concrete_function(
            *(tf.TensorSpec([rows, *array.shape[1:]], array.dtype) for array in (x, y))
        )
    return concrete.graph


def audit(workload: str, setting: str, static_batch: bool = False) -> list[Finding]:
    """What the private step takes to the host and the plain one does not."""
    plain = {_kind(finding) for finding in _plain(workload, static_batch)}
    found = audit_graph(traced_step(workload, setting, static_batch))
    return [finding for finding in found if _kind(finding) not in plain]


@functools.cache
def _plain(workload: str, static_batch: bool) -> tuple[Finding, ...]:
    return tuple(audit_graph(traced_step(workload, "plain", static_batch)))


def _kind(finding: Finding) -> tuple[str, str, str]:
    return finding.op, finding.dtype, finding.why


def _show(findings: Iterable[Finding]) -> None:
    for (op, dtype, why), count in collections.Counter(map(_kind, findings)).items():
        largest = [f for f in findings if _kind(f) == (op, dtype, why)]
        sizes = [f.elements for f in largest if f.elements is not None]
        size = f"up to {max(sizes):,} numbers" if sizes else "size not static"
        print(f"    {op} {dtype}: {why}, {count} times, {size}; {largest[0].where}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", default=",".join(AUDITED))
    parser.add_argument("--settings", help="separated by semicolons")
    parser.add_argument(
        "--batch", choices=["static", "dynamic", "both"], default="both"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    settings = arguments.settings.split(";") if arguments.settings else list(SETTINGS)
    batches = ["static", "dynamic"] if arguments.batch == "both" else [arguments.batch]
    results = []

    def report(workload, setting, batch, found):
        findings = [dataclasses.asdict(finding) for finding in found]
        results.append(
            {"model": workload, "setting": setting, "batch": batch, "found": findings}
        )
        if not arguments.json:
            print(f"{workload}, {batch} batch, {setting}: {len(found)}", flush=True)
            _show(found)

    for workload in arguments.workloads.split(","):
        for batch in batches:
            static = batch == "static"
            report(workload, "plain", batch, _plain(workload, static))
            for setting in settings:
                if static or setting not in NEEDS_STATIC_BATCH:
                    found = audit(workload, setting, static)
                    report(workload, setting, batch, found)
    if arguments.json:
        print(json.dumps(results, indent=2))
    if any(row["found"] for row in results if row["setting"] != "plain"):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
