"""The probe: before the first update, per-example gradients are put to the test.

A rule that gives a gradient to the wrong example, or a layer that mixes examples
(BatchNormalization), would void the guarantee without any visible sign. So while
the training step is traced, the very ops that will train are copied into
functions of their own and run on made-up data and on copies of the variables:

1. There is one loss for each example, and each input has a row for each example.
2. With any other examples replaced, the loss of an example must stay what it is:
   for every pair of examples, for small and large inputs, at the current weights
   and at others near by, and for several seeds.
3. So must its gradient; and the gradient of `sum_b r_b loss_b` with respect to
   example b's inputs must be `r_b` times that of `sum_b loss_b`.
4. For random weights `r`, `sum_b r_b g_b` must be the ordinary gradient of
   `sum_b r_b loss_b`: right rules, right order of the batch axis.
5. The norm of a row must be that of its ordinary gradient: right clipping.

A failure is a Python exception in `fit`, before anything has been updated, with
and without XLA (which would drop assertions inside the step).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from keras_dp_ext._compat import tf_internals
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.rules.device import is_compiled
from keras_dp_ext.gradients.split import ASSUMED_BATCH, check_rows_are_examples
from keras_dp_ext.verification import probe_errors
from keras_dp_ext.verification.probe_functions import ProbeFunctions
from keras_dp_ext.verification.row_analysis import analyse
from keras_dp_ext.verification.synthetic_batches import (
    SyntheticBatches,
    separating_subsets,
)
from keras_dp_ext.verification.variable_copies import VariableCopies

# Inputs of models that rescale them by themselves: pixels up to 255.
_LARGE = 100.0

# A layer that mixes one batch in ten (MixUp) is caught with a probability of 92 %.
_SEEDS = 24


class Probe:
    """One test of an engine's result.

    Args:
        losses: `[batch]`, in the graph that is being traced.
        variables: The trainable variables.
        gradients: What the engine made of them.
        group: Examples per microbatch.
        passed: Fingerprints of graphs that have passed; a second trace of the same
            step needs no second test.
    """

    def __init__(
        self,
        losses: tf.Tensor,
        variables: Sequence,
        gradients,
        group: int,
        passed: set[bytes],
    ):
        self._losses = losses
        self._variables = list(variables)
        self._gradients = gradients
        self._group = group
        self._passed = passed
        every_op = graph_lib.ancestors([losses])
        self._sources = graph_lib.data_sources(every_op, losses.shape[0])
        self._ops = graph_lib.ancestors([losses], stop=set(map(id, self._sources)))
        check_rows_are_examples(losses, self._sources)
        self._batch = self._number_of_examples()
        self._rows = self._batch // group

    def verify(self) -> None:
        """Raises `ValueError` if a per-example gradient is not what it claims."""
        fingerprint = self._fingerprint()
        if fingerprint in self._passed:
            return
        verdict = analyse(self._losses, self._sources, self._group)
        self._functions = ProbeFunctions(
            self._losses,
            self._sources,
            self._ops,
            self._variables,
            self._gradients,
            self._group,
        )
        with tf.init_scope():
            self._copies = VariableCopies(self._functions.ops)
            self._functions.use(self._copies)
            if not any(self._passes(positive) for positive in (False, True)):
                raise probe_errors.nothing_to_see(self._sources)
        if verdict.hidden:
            # Later than the tests: they know more about mixing that they can see.
            raise probe_errors.hidden_mixing(verdict.hidden[0])
        self._passed.add(fingerprint)

    def _fingerprint(self) -> bytes:
        """All that the forward graph is made of: ops, constants, variables."""
        digest = hashlib.sha256(f"{self._group} {is_compiled()}".encode())
        for variable in self._variables:
            handle = graph_lib.captured_source(graph_lib.variable_handle(variable))
            digest.update(f"{_identity(handle)} ".encode())
        for op in self._ops:
            digest.update(op.node_def.SerializeToString(deterministic=True))
            if op.type == "Placeholder":
                captured = graph_lib.captured_source(op.outputs[0])
                digest.update(f"{_identity(captured)} ".encode())
        for source in self._sources:
            digest.update(f"{source.dtype.name} {source.shape} ".encode())
        return digest.digest()

    # One loss for each example ----------------------------------------------

    def _number_of_examples(self) -> int:
        known = [self._losses.shape[0]]
        known += [source.shape[0] for source in self._sources if source.shape.rank]
        known = [size for size in known if size is not None]
        return known[0] if known else max(ASSUMED_BATCH, 4 * self._group)

    # The tests --------------------------------------------------------------

    def _passes(self, positive: bool) -> bool:
        """`False` if the results are not finite and say nothing."""
        generator = np.random.default_rng(0)
        batches = SyntheticBatches(
            self._sources, self._batch, self._group, generator, positive
        )
        data, others = batches.draw(), batches.draw()
        self._copies.reset()
        losses = self._losses_of(data)
        if losses is None or not np.isfinite(losses).all():
            return False
        for kept in separating_subsets(self._rows, generator):
            new_data = batches.with_others(data, others, kept)
            self._check_losses(losses, data, new_data, kept)
        self._check_extremes(batches, data, generator)
        self._check_other_circumstances(batches, generator)
        row = int(np.argmax(np.abs(losses)))
        return self._check_gradients(batches, data, others, row, generator)

    def _losses_of(self, data) -> np.ndarray | None:
        """`[rows]`; `None` if the model refuses the made-up data."""
        self._copies.restore()
        try:
            losses = self._functions.losses(data).numpy()
        except tf.errors.InvalidArgumentError:
            return None  # E.g. a vocabulary of less than four tokens.
        if len(losses) != self._batch:
            raise probe_errors.rows_are_not_examples(
                self._sources[0], losses.shape, self._batch
            )
        return losses.reshape(self._rows, -1).mean(axis=1)

    def _check_losses(self, losses, data, new_data, kept) -> None:
        """Raises if one of the kept examples sees that others have changed."""
        new_losses = self._losses_of(new_data)
        if losses is None or new_losses is None or not kept.any():
            return
        # The same ops on the same row: only a difference of rounding is innocent.
        if not _close(new_losses[kept], losses[kept], 0.01 * self._tolerance):
            raise self._mixing_error(data, new_data, kept, "the loss")

    def _check_extremes(self, batches, data, generator) -> None:
        kept = _random_half(self._rows, generator)
        for old_data, new_data in batches.extremes(data, kept):
            losses = self._losses_of(old_data)
            self._check_losses(losses, old_data, new_data, kept)

    def _check_other_circumstances(self, batches, generator) -> None:
        """Large inputs, other weights, other seeds: what is asleep now may wake up.

        Results that are not finite say nothing here, unless others changed them.
        """
        rounds = [(_LARGE, False), (1.0, True), (_LARGE, True), (1.0, False)]
        if self._copies.have_seeds:
            rounds *= _SEEDS // len(rounds)
        for number, (scale, is_perturbed) in enumerate(rounds):
            self._copies.reset()
            self._copies.reseed(generator)
            if is_perturbed:
                self._copies.perturb(generator)
            data, others = batches.draw(scale), batches.draw(scale)
            kept = _random_half(self._rows, generator)
            losses = self._losses_of(data)
            for mask in (kept, ~kept) if number < 4 else (kept,):
                new_data = batches.with_others(data, others, mask)
                self._check_losses(losses, data, new_data, mask)

    def _check_gradients(self, batches, data, others, row, generator) -> bool:
        """At weights near by: a gradient of zero would agree with everything."""
        r = generator.uniform(0.5, 1.5, self._rows).astype(np.float32)
        alone = np.zeros(self._rows, np.float32)
        alone[row] = 1.0
        new_data = batches.with_others(data, others, alone > 0)
        self._copies.reset()
        here = self._functions.gradients(data, r)
        if not here.is_finite():
            return False
        self._compare(here, "sum over the batch")
        self._copies.perturb(generator)
        if not self._functions.gradients(data, r).is_finite():
            self._copies.reset()
        result = self._gradients_of(data, alone)
        new_result = self._gradients_of(new_data, alone)
        if new_result.is_finite():
            self._check_same_gradient(result, new_result, data, new_data, alone > 0)
        self._compare(result, "gradient of one example")
        self._compare_norm(result.norms_squared[row], result.truth)
        weighted = self._gradients_of(data, r)
        self._compare(weighted, "sum over the batch")
        plain = self._gradients_of(data, np.ones_like(r))
        if not self._agree_on_inputs(weighted, plain, r):
            kept = np.arange(self._rows) % 2 == 0
            new_data = batches.with_others(data, others, kept)
            raise self._mixing_error(data, new_data, kept, "the gradient")
        return True

    def _gradients_of(self, data, r):
        self._copies.restore()
        return self._functions.gradients(data, r)

    def _check_same_gradient(self, result, new_result, data, new_data, kept) -> None:
        """Raises if the gradient of an example sees that others have changed."""
        scale = _largest(result.truth)
        for variable, old, new in zip(
            self._variables, result.truth, new_result.truth, strict=True
        ):
            if not _close(new, old, 0.01 * self._tolerance, 1e-6 * scale):
                what = f"the gradient of `{probe_errors.name(variable)}`"
                raise self._mixing_error(data, new_data, kept, what)

    def _agree_on_inputs(self, weighted, plain, r) -> bool:
        """Whether example b's inputs move `r_b` times its own loss, and no other."""
        pairs = [
            (a.reshape(self._rows, -1), b.reshape(self._rows, -1))
            for a, b in zip(weighted.inputs, plain.inputs, strict=True)
        ]
        scale = _largest(plain.inputs)
        return all(
            _close(a, r[:, None] * b, self._tolerance, 1e-2 * self._tolerance * scale)
            for a, b in pairs
        )

    @property
    def _tolerance(self) -> float:
        halves = (tf.float16, tf.bfloat16)
        if any(output.dtype in halves for op in self._ops for output in op.outputs):
            return 5e-2
        return 1e-3

    def _compare(self, result, what: str) -> None:
        scale = _largest(result.truth)
        for variable, computed, expected in zip(
            self._variables, result.sums, result.truth, strict=True
        ):
            rounding = 1e-2 * self._tolerance * scale
            if not _close(computed, expected, self._tolerance, rounding):
                largest = np.max(np.abs(computed - expected))
                raise probe_errors.wrong_gradients(variable, what, largest)

    def _compare_norm(self, norm_squared, truth) -> None:
        expected = sum(
            float(np.sum(np.square(value, dtype=np.float64))) for value in truth
        )
        # Below the last term a square of float32 is zero.
        allowed = 2 * self._tolerance * expected + float(np.finfo(np.float32).tiny)
        if abs(norm_squared - expected) > allowed:
            raise probe_errors.wrong_norms(self._variables, norm_squared, expected)

    def _mixing_error(self, data, new_data, kept, what: str) -> ValueError:
        culprit = self._first_mixing_op(data, new_data, kept)
        return probe_errors.mixing(what, culprit, self._variables)

    def _first_mixing_op(self, data, new_data, kept) -> str:
        """Names the op at which a kept example begins to see the others."""
        tensors, evaluate = self._functions.every_float()
        results = []
        for inputs in (data, new_data):
            self._copies.restore()
            results.append([value.numpy() for value in evaluate(inputs)])
        for tensor, old, new in zip(tensors, *results, strict=True):
            if old.shape != new.shape or not old.size or old.ndim == 0:
                continue  # Singular values, say, may come out in other numbers.
            if old.shape[0] % self._rows:
                continue
            old, new = (value.reshape(self._rows, -1)[kept] for value in (old, new))
            if not _close(new, old, 1e-3, 1e-5 * _largest([old])):
                return f"op `{tensor.op.name}` ({tensor.op.type})"
        return "the loss"


def _identity(tensor: tf.Tensor | None) -> int | None:
    """Unlike `id`, never given to a second tensor."""
    return None if tensor is None else tf_internals.tensor_identity(tensor)


def _random_half(rows: int, generator) -> np.ndarray:
    return generator.permutation(rows) < (rows + 1) // 2


def _largest(values) -> float:
    return max((np.max(np.abs(value), initial=0) for value in values), default=0.0)


def _close(computed, expected, tolerance: float, rounding: float = 0.0) -> bool:
    """Up to `tolerance` times the largest number, plus `rounding`.

    Nothing absolute: losses may have any unit. What is not finite must be so in
    both.
    """
    computed, expected = np.asarray(computed), np.asarray(expected)
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(computed)):
        return False
    computed, expected = computed[finite], expected[finite]
    allowed = tolerance * np.max(np.abs(expected), initial=0) + rounding
    return bool(np.all(np.abs(computed - expected) <= allowed))
