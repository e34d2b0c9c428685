"""One graph that is being interpreted: the training step, or a function it calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext._compat import tf_internals
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.verification.row_analysis import custom_gradients
from keras_dp_ext.verification.row_analysis.findings import Finding, RowsLostError
from keras_dp_ext.verification.row_analysis.registry import (
    find_content,
    find_pieces,
    find_transfer,
)
from keras_dp_ext.verification.row_analysis.sizes import AnySize, Size
from keras_dp_ext.verification.row_analysis.transfer import numbering
from keras_dp_ext.verification.row_analysis.values import (
    MIXED,
    Kind,
    Value,
    constant,
)

# Entered also with constants: a function may read from an iterator by itself.
_CALLS = graph_lib.LOOP_OPS | graph_lib.CALL_OPS


class Frame:
    """Interprets the ops of one graph, inputs before their consumers.

    Args:
        batch: Number of examples.
        known: From ids of tensors to what is known about them.
        path: Names of the calls around this graph.
        findings: Where to note ops that may mix examples.
        has_gradient: Whether it will be differentiated: no gradient is, and no pipeline.
    """

    def __init__(
        self,
        batch: AnySize,
        known: dict[int, Value],
        path: tuple[str, ...] = (),
        findings: list[Finding] | None = None,
        has_gradient: bool = True,
    ):
        self.batch = batch
        self.path = path
        self.findings = [] if findings is None else findings
        self.has_gradient = has_gradient
        self._known = known

    def run(self, tensors: Sequence[tf.Tensor]) -> list[Value]:
        """What is known about tensors, after all ops that they depend on."""
        known = self._known
        tensors = [self._origin(tensor) for tensor in tensors]
        for op in self._ops_before(tensors):
            outputs = op.outputs
            if not outputs or id(outputs[0]) in known:
                continue
            inputs = [known[id(tensor)] for tensor in self._inputs(op)]
            values = self._outputs_of(op, inputs)
            if isinstance(values, Value):
                values = [values] * len(outputs)
            for tensor, value in zip(outputs, values, strict=True):
                known.setdefault(id(tensor), value)
        return [known[id(tensor)] for tensor in tensors]

    def _ops_before(self, tensors: Sequence[tf.Tensor]) -> list[tf.Operation]:
        """The ops whose values are needed, inputs before their consumers."""
        return graph_lib.ancestors(tensors, self._known, self._inputs)

    def _inputs(self, op: tf.Operation) -> list[tf.Tensor]:
        """The inputs that the result depends on.

        `recompute_grad` makes its result wait for the upstream gradient by `b == b` of
        a truth value, which is true for all data.
        """
        inputs = op.inputs
        if op.type == "Equal" and inputs[0] is inputs[1] and inputs[0].dtype == tf.bool:
            return []
        return [self._origin(tensor) for tensor in inputs]

    def _origin(self, tensor: tf.Tensor) -> tf.Tensor:
        """Where a tensor comes from for sure, if that is more than meets the eye.

        Gradients of data and of weights leave a backward function side by side.
        `bincount` computes `min(n, max(n, data))`, which is n.
        """
        while True:
            op = tensor.op
            if not self.has_gradient and op.type == "IdentityN":
                tensor = op.inputs[tensor.value_index]
            elif op.type == "Minimum" and (bound := _bound_of_clip(op)) is not None:
                tensor = bound
            else:
                return tensor

    def _outputs_of(
        self, op: tf.Operation, inputs: Sequence[Value]
    ) -> list[Value] | Value:
        try:
            values = self._transfer(op, inputs)
            if self.has_gradient:
                custom_gradients.check(self, op, inputs, values)
            return values
        except RowsLostError as error:
            return self._lost(op, error)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            # A form of the op that the transfer function does not know.
            lost = RowsLostError(f"could not be read ({error}).", may_hide=False)
            return self._lost(op, lost)

    def _transfer(
        self, op: tf.Operation, inputs: Sequence[Value]
    ) -> list[Value] | Value:
        kinds = {value.kind for value in inputs}
        if op.type in graph_lib.DATA_OPS or self._is_argument(op):
            raise RowsLostError("reads data that have not come through the batch.")
        if Kind.MIXED in kinds:
            return MIXED
        legacy = None
        if find_transfer(op.type) is None:
            legacy = self.legacy_graph(op, op.type, inputs)
        if legacy is not None:
            return self.call(legacy, inputs, op.name)[0]
        if kinds <= {Kind.CONSTANT} and op.type not in _CALLS:
            rule = find_content(op.type) if len(inputs) == len(op.inputs) else None
            value = None if rule is None else rule(op, inputs, self)
            if isinstance(value, list):
                return value
            if value is not None or len(op.outputs) == 1:
                return numbering.follow(op, inputs, value or constant(self.shape(op)))
            return self._constants(op)
        if any(value.role not in (None, "numbered") for value in inputs):
            return self._pieces(op, inputs, kinds)
        rule = find_transfer(op.type)
        if Kind.ONE_ROW in kinds and op.type not in _LISTS:
            return self._one_row(op, inputs)
        if rule is None:
            # XLA's own ops can do anything along any axis.
            raise RowsLostError(
                "is not known to treat every example by itself.",
                may_hide=op.type.startswith("Xla"),
            )
        return rule(op, inputs, self)

    def _one_row(self, op: tf.Operation, inputs: Sequence[Value]) -> Value:
        """Any op on one example, and on constants, has a result of that example."""
        rows = {value.row for value in inputs if not value.is_constant}
        if len(rows) > 1 or any(value.has_rows for value in inputs):
            raise RowsLostError("brings different examples together.")
        value = Value(Kind.ONE_ROW, row=rows.pop())
        if op.type in _CALLS:
            # Only for the gradients that they may define.
            for number, graph in enumerate(graph_lib.called_graphs(op)):
                self.call(graph, [value] * len(graph.inputs), f"{op.name}/{number}")
        return value

    def _pieces(
        self, op: tf.Operation, inputs: Sequence[Value], kinds: Any
    ) -> list[Value] | Value:
        is_ordinary = Kind.PIECES not in kinds and op.type != "Cumsum"
        rule = find_transfer(op.type) if is_ordinary else find_pieces(op.type)
        if rule is None:
            raise RowsLostError(
                "works on pieces of all examples, of which each has a number that "
                "depends on the data."
            )
        return rule(op, inputs, self)

    def _is_argument(self, op: tf.Operation) -> bool:
        """Whether data enter by an op that was not named as their source."""
        if op.type != "Placeholder" or self.path:
            return False
        tensor = op.outputs[0]
        is_handle = tensor.dtype in (tf.resource, tf.variant)
        return not is_handle and graph_lib.captured_source(tensor) is None

    def _lost(self, op: tf.Operation, error: RowsLostError) -> Any:
        """Notes the finding; what may be innocent is followed as if it were.

        Behind an op that only the numerical test can judge, an op that surely mixes
        must still be found: so the output is assumed to be what it looks like.
        """
        guesses = [self.looks_like_rows(op, n) for n in range(len(op.outputs))]
        may_hide = error.may_hide or None in guesses
        path = "/".join([*self.path, op.name])
        self.findings.append(Finding(op, error.reason, path, may_hide))
        return MIXED if may_hide else guesses

    def looks_like_rows(self, op: tf.Operation, number: int) -> Value | None:
        shape = op.outputs[number].shape
        if not shape.rank or op.outputs[number].dtype == tf.variant:
            return None
        if isinstance(self.batch, int) and shape[0] not in (None, self.batch):
            return None
        if not isinstance(self.batch, int) and shape[0] is not None:
            return None
        return self.rows(op, number, axis=0)

    # For transfer functions -------------------------------------------------

    def shape(self, op: tf.Operation, number: int = 0) -> tuple[AnySize, ...] | None:
        """The shape of an output; axes of unknown size get a name."""
        shape = op.outputs[number].shape
        if shape.rank is None:
            return None
        return tuple(
            Size.unknown(*self.path, op.name, number, axis) if size is None else size
            for axis, size in enumerate(shape.as_list())
        )

    def rows(
        self,
        op: tf.Operation,
        number: int = 0,
        *,
        axis: int,
        outer: AnySize = 1,
        block: AnySize = 1,
        shape: Iterable[AnySize] | None = None,
    ) -> Value:
        """An output with examples along `axis`."""
        shape = self.shape(op, number) if shape is None else shape
        if shape is not None:
            shape = list(shape)
            shape[axis] = outer * self.batch * block
            shape = tuple(shape)
        return Value(Kind.ROWS, shape=shape, axis=axis, outer=outer, block=block)

    def rows_like(
        self, value: Value, op: tf.Operation, axis: int, number: Any = 0
    ) -> Value:
        """An output whose axis `axis` is the axis of the examples of an input."""
        return self.rows(op, number, axis=axis, outer=value.outer, block=value.block)

    def call(
        self, graph: Any, inputs: Sequence[Value], name: str, quiet: bool = False
    ) -> Any:
        """What a function makes of its inputs: the frame and its outputs."""
        known = {id(t): v for t, v in zip(graph.inputs, inputs, strict=True)}
        findings = [] if quiet else self.findings
        path = (*self.path, name)
        frame = Frame(self.batch, known, path, findings, self.has_gradient)
        return frame.run(graph.outputs), frame

    def legacy_graph(self, op: tf.Operation, name: str, inputs: Sequence[Value]) -> Any:
        """The graph of a function in TensorFlow's first style, or `None`."""
        shapes = [
            None
            if value.shape is None
            else [size if isinstance(size, int) else None for size in value.shape]
            for value in inputs
        ]
        return tf_internals.graph_of_legacy_function(op.graph, name, shapes)

    def value_of(self, tensor: tf.Tensor) -> Value:
        """Also of a tensor that is no ancestor of what was asked for."""
        return self.run([tensor])[0]

    def _constants(self, op: tf.Operation) -> list[Value]:
        return [constant(self.shape(op, n)) for n in range(len(op.outputs))]


def _bound_of_clip(op: tf.Operation) -> tf.Tensor | None:
    """`n` of `min(n, max(n, ...))`, for integers."""
    bound, largest = op.inputs
    if largest.op.type != "Maximum" or not bound.dtype.is_integer:
        return None
    for other in largest.op.inputs:
        is_constant = bound.op.type == "Const" and other.op.type == "Const"
        if other is bound or (
            is_constant
            and bound.shape.rank == other.shape.rank == 0
            and tf.get_static_value(bound) == tf.get_static_value(other)
        ):
            return bound
    return None


# Ops that put the tensors of single examples into lists, and take them out.
_LISTS = frozenset({"TensorListSetItem", "TensorListGetItem", "TensorListPushBack"})
