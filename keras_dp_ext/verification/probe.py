"""The probe: before the first update, per-example gradients are put to the test.

A rule that gives a gradient to the wrong example, or a layer that mixes examples
(BatchNormalization), would void the guarantee without any visible sign. So while
the training step is traced, the very ops that will train run on made-up data and on
copies of the variables:

1. There is one loss for each example, and each input has a row for each example.
2. Examples must not mix. For most models that is read off the graph, for all inputs
   (`row_analysis`). For the others, with any other examples replaced, the loss of an
   example must stay what it is (`mixing_trials.py`), and so must its gradient.
3. For random weights `r`, `sum_b r_b g_b` must be the ordinary gradient of
   `sum_b r_b loss_b`: right rules, right order of the batch axis
   (`gradient_trials.py`).
4. The norm of a row must be that of its ordinary gradient: right clipping.
5. Where a bound looks at every coordinate, the rows that it is given are added up with
   the weights `r` in its place (`rows_of_bound.py`).

Every probe draws its own random numbers from the operating system, so that nothing
can be made to pass. A failure is a Python exception in `fit`, before anything has
been updated, with and without XLA (which would drop assertions inside the step).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.gradients.one_loss_per_example import check_rows_are_examples
from keras_dp_ext.verification import probe_errors
from keras_dp_ext.verification.fingerprint import fingerprint
from keras_dp_ext.verification.gradient_trials import GradientTrials
from keras_dp_ext.verification.mixing_trials import MixingTrials
from keras_dp_ext.verification.probe_functions import ProbeFunctions
from keras_dp_ext.verification.progress import Progress
from keras_dp_ext.verification.row_analysis.analyse import analyse
from keras_dp_ext.verification.synthetic_batches import SyntheticBatches, domains
from keras_dp_ext.verification.variable_copies import VariableCopies
from keras_dp_ext.verification.vocabularies import numbers_of, vocabulary_of

if TYPE_CHECKING:
    from keras_dp_ext.verification.synthetic_batches import Domain

# Fingerprints of what has passed in this process.
_passed: set[bytes] = set()

# Primes: few axes are as long, and an axis as long as the batch might pass for it.
# Where it is proven that examples do not mix, two show whether a rule is right.
_TWO_ROWS, _FEW_ROWS, _MORE_ROWS = (2, 3, 5, 7), (5, 7, 11, 13), (17, 19, 23)

# For models that take multiples of four or eight examples only.
_ROUND_NUMBER = 16

# Below as many ops, more rows cost next to nothing.
_SMALL_GRAPH = 300

_MESSAGE = (
    "keras_dp_ext: verifying that the model keeps examples apart and that every "
    "gradient rule is right. Once for each architecture, before the first step ..."
)


class Probe:
    """One test of an engine's result.

    Args:
        losses: `[batch]`, in the graph that is being traced.
        variables: The trainable variables.
        gradients: What the engine made of them, after the training step has asked
            for the norms and sums that it needs.
        group: Examples per microbatch.
    """

    def __init__(
        self, losses: tf.Tensor, variables: Sequence, gradients: Any, group: int
    ):
        self._losses = losses
        self._variables = list(variables)
        self._gradients = gradients
        self._group = group
        self._ops = graph_lib.ancestors([losses])
        self._sources = graph_lib.data_sources(self._ops, losses.shape[0])
        check_rows_are_examples(losses, self._sources)

    def verify(self) -> None:
        """Raises `ValueError` if a per-example gradient is not what it claims."""
        with Progress(_MESSAGE):
            functions = ProbeFunctions(
                self._losses,
                self._sources,
                self._variables,
                self._gradients,
                self._group,
            )
            try:
                self._verify(functions)
            finally:
                functions.forget()

    def _verify(self, functions: ProbeFunctions) -> None:
        with tf.init_scope():
            identity = fingerprint(
                functions.functions(), self._sources, self._variables, self._group
            )
            if identity in _passed:
                return
            verdict = analyse(self._losses, self._sources, self._group)
            copies = VariableCopies(
                source
                for function in functions.functions()
                for source in function.sources
            )
            functions.use(copies)
            vocabulary = vocabulary_of(functions.forward)
            numbers = numbers_of(functions.forward, self._sources)
            if not any(
                self._passes(functions, copies, domain, batch, verdict)
                for batch in self._batch_sizes(verdict.is_proven)
                for domain in domains(self._sources, vocabulary, numbers)
            ):
                raise probe_errors.no_usable_inputs_error(self._sources)
            if verdict.hidden:
                # Later than the trials: they know more about mixing that they can see.
                raise probe_errors.hidden_mixing_error(verdict.hidden[0])
        _passed.add(identity)

    def _passes(
        self,
        functions: ProbeFunctions,
        copies: VariableCopies,
        domain: Domain,
        batch: int,
        verdict: Any,
    ) -> bool:
        """`False` if the model refuses such values, or nothing finite comes out."""
        generator = np.random.default_rng()
        batches = SyntheticBatches(self._sources, batch, self._group, generator, domain)
        mixing = MixingTrials(
            functions,
            copies,
            batches,
            batch,
            self._group,
            self._variables,
            generator,
            verdict.unknown,
        )
        trials = GradientTrials(
            functions, copies, batches, self._variables, mixing, generator
        )
        if verdict.is_proven:
            return trials.check_rules()
        if not mixing.accepts():
            return False
        mixing.check()
        return trials.check_everything()

    def _batch_sizes(self, is_proven: bool) -> list[int]:
        """How many examples to make up."""
        known = [self._losses.shape[0]]
        known += [source.shape[0] for source in self._sources if source.shape.rank]
        known = [size for size in known if size is not None]
        if known:
            return known[:1]
        dependent = graph_lib.data_dependent(self._ops)
        taken = {
            size
            for op in self._ops
            for output in op.outputs
            if id(output) in dependent and output.shape.rank
            for size in output.shape.as_list()
        }
        wanted = _TWO_ROWS if is_proven else _FEW_ROWS
        if len(self._ops) < _SMALL_GRAPH:
            wanted = _MORE_ROWS
        free = [rows for rows in wanted if rows * self._group not in taken]
        return [self._group * (free or wanted)[0], self._group * _ROUND_NUMBER]
