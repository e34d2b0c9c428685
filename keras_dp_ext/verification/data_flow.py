"""How data flow through a graph, up to where noise covers them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.verification.graph_marks import marks_of

# Besides `graph_lib.DATA_OPS`: batches for each replica, and data sets as tensors.
_DATA_OPS = graph_lib.DATA_OPS | {
    "DatasetToSingleElement",
    "MultiDeviceIteratorGetNextFromShard",
    "ReduceDataset",
}

# What they are given decides the shape of what they return.
_SHAPED_BY_CONTENTS = frozenset(
    {
        "BooleanMask",
        "Compress",
        "DynamicPartition",
        "ListDiff",
        "RaggedRange",
        "RaggedTensorToTensor",
        "Where",
    }
)
_SHAPED_BY_CONTENTS_PREFIXES = (
    "DenseToDenseSetOperation",
    "NonMaxSuppression",
    "Sparse",
    "StringSplit",
    "Unicode",
    "Unique",
)
# Which inputs are a shape, a size or a position; `None` for all.
_SHAPED_BY_INPUTS = {
    "BroadcastTo": (1,),
    "DenseBincount": (1,),
    "Empty": (0,),
    "Fill": (0,),
    "LinSpace": (2,),
    "MirrorPad": (1,),
    "Multinomial": (1,),
    "OneHot": (1,),
    "Pad": (1,),
    "PadV2": (1,),
    "Range": None,
    "Reshape": (1,),
    "Slice": (1, 2),
    "SplitV": (1,),
    "StridedSlice": (1, 2, 3),
    "TensorListReserve": (0, 1),
    "Tile": (1,),
}


# Their first input decides which function runs.
BRANCH_OPS = frozenset({"Case", "If", "StatelessCase", "StatelessIf"})


class DataFlow:
    """Which ops of a graph depend on data.

    An op counts as a whole: the gradient of a loop or of a call gives it further
    outputs later on. The shape of a batch is public and no data; the shape of what
    was picked by its contents (`tf.boolean_mask`) is data.

    Args:
        sources: Ops whose outputs are data.
    """

    def __init__(self, sources: Iterable[tf.Operation] = ()):
        self._contents: set[tf.Operation] = set(sources)
        self._shapes: set[tf.Operation] = set()

    def __contains__(self, tensor: tf.Tensor) -> bool:
        return tensor.op in self._contents

    def add(self, source: tf.Operation) -> None:
        """Declares the outputs of an op to be data."""
        self._contents.add(source)

    def discard(self, op: tf.Operation) -> None:
        """Declares the outputs of an op to be no data."""
        self._contents.discard(op)
        self._shapes.discard(op)

    def visit(self, op: tf.Operation) -> None:
        """Follows the data through one more op."""
        if op in marks_of(op.graph).released:
            return
        if op not in self._shapes and self._is_shaped_by_data(op):
            self._shapes.add(op)
        if op not in self._contents and self._holds_data(op):
            self._contents.add(op)

    def visit_all(self, ops: Iterable[tf.Operation]) -> DataFlow:
        """Follows the data through ops in the order in which they were made."""
        ops = list(ops)
        seen: set[tf.Operation] = set()
        is_ordered = True
        for op in ops:
            # The gradient of a loop makes it depend on ops that come later.
            is_ordered = is_ordered and all(
                t.op in seen or t.op in self._contents for t in op.inputs
            )
            seen.add(op)
            self.visit(op)
        before = None
        while not is_ordered and before != (len(self._contents), len(self._shapes)):
            before = len(self._contents), len(self._shapes)
            for op in ops:
                self.visit(op)
        return self

    def _holds_data(self, op: tf.Operation) -> bool:
        if op.type in _DATA_OPS:
            return True
        if op.type == "VarIsInitializedOp":
            return (
                False  # Whether a variable has a value tells nothing of the data in it.
            )
        if op.type in graph_lib.SHAPE_OPS:
            return any(tensor.op in self._shapes for tensor in op.inputs)
        # Random draws hold no data, unless data are among their inputs (a shuffled
        # batch, the rate of a Poisson distribution).
        if any(tensor.op in self._contents for tensor in op.inputs):
            return True
        # A function may fetch the next batch by itself.
        return graph_lib.calls_functions(op) and any(
            _returns_data(graph) for graph in graph_lib.called_graphs(op)
        )

    def _is_shaped_by_data(self, op: tf.Operation) -> bool:
        inputs = op.inputs
        if any(tensor.op in self._shapes for tensor in inputs):
            return True
        if op.type in _SHAPED_BY_INPUTS:
            numbers = _SHAPED_BY_INPUTS[op.type]
            numbers = range(len(inputs)) if numbers is None else numbers
            return any(inputs[number] in self for number in numbers)
        if not any(tensor in self for tensor in inputs):
            return False
        return _is_shaped_by_contents(op) or self._is_shaped_inside(op)

    def _is_shaped_inside(self, op: tf.Operation) -> bool:
        if not graph_lib.calls_functions(op):
            return False
        graphs, arguments = graph_lib.called_graphs(op), call_arguments(op)
        if not graphs or any(len(graph.inputs) != len(arguments) for graph in graphs):
            return True
        numbers = [n for n, tensor in enumerate(arguments) if tensor in self]
        return any(inside(graph, numbers)._shapes for graph in graphs)


def inside(graph: Any, numbers: Iterable[int]) -> DataFlow:
    """The flow through a function, given the numbers of the inputs with data."""
    sources = [graph.inputs[number].op for number in numbers]
    return DataFlow(sources).visit_all(graph.get_operations())


def in_any_iteration(loop: tf.Operation, numbers: set[int]) -> tuple[set[int], bool]:
    """Which inputs of a loop depend on data in some iteration, and if data end it.

    Args:
        loop: A `While` op.
        numbers: The numbers of the inputs that do in the first iteration.
    """
    body = graph_lib.function_graph(loop, "body")
    condition = graph_lib.function_graph(loop, "cond")
    while True:
        flow = inside(body, numbers)
        grown = numbers | {
            number for number, output in enumerate(body.outputs) if output in flow
        }
        if grown == numbers:
            break
        numbers = grown
    flow = inside(condition, numbers)
    return numbers, any(output in flow for output in condition.outputs)


def _returns_data(graph: Any) -> bool:
    flow = inside(graph, [])
    return any(output in flow for output in graph.outputs)


def call_arguments(op: tf.Operation) -> list[tf.Tensor]:
    """What an op hands to the functions that it calls."""
    return list(op.inputs)[1 if op.type in BRANCH_OPS else 0 :]


def _is_shaped_by_contents(op: tf.Operation) -> bool:
    # The last one has a name like theirs, but returns a number for each row.
    return op.type in _SHAPED_BY_CONTENTS or (
        op.type.startswith(_SHAPED_BY_CONTENTS_PREFIXES)
        and op.type != "SparseSoftmaxCrossEntropyWithLogits"
    )
