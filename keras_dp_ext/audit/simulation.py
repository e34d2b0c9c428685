"""Runs the stages of a mechanism many times, each run with its own seed."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dp_ext.audit.neighbours import Neighbours, split_rows
from keras_dp_ext.gradients.base import MaterializedGradients
from keras_dp_ext.mechanisms.base import Mechanism

# Numbers that one call of the compiled function returns, at most.
_CHUNK_NUMBERS = 2**23
STAGES = ("noise", "refine")
_KEY = tf.TensorSpec([2], tf.int32)


class Simulation:
    """A mechanism under audit, with a state of its own.

    The methods that run are those of the object that was passed in, on a shallow
    copy: what the runs do to its state (moving averages, counters) leaves the
    audited optimizer alone. Every run starts from a fresh state.

    All runs are one loop compiled by XLA: a run of DP-SGD with a few parameters
    takes microseconds, and no stage has to know that it is repeated.

    Args:
        mechanism: What to run.
        shapes: The shapes of the trainable variables.
        seed: Of all randomness here.
        jit_compile: Whether to compile with XLA.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        shapes: Sequence[Sequence[int]],
        seed: int,
        jit_compile: bool = True,
    ):
        self.mechanism = copy.copy(mechanism)
        self.shapes = [tuple(int(size) for size in shape) for shape in shapes]
        self.num_parameters = sum(math.prod(shape) for shape in self.shapes)
        # What is noised: sums of the gradients, and of the mechanism's statistics.
        self._released = [*self.shapes, *self.mechanism.statistics()]
        self._jit_compile = jit_compile
        self._state: list[keras.Variable] = []
        variables = [
            keras.Variable(np.zeros(shape, np.float32), name=f"audited_{index}")
            for index, shape in enumerate(self.shapes)
        ]
        self.mechanism.build(variables, self._add_variable)
        self._key = np.random.SeedSequence(seed).generate_state(2).view(np.int32)
        self._draws = 0
        if self.mechanism.needs_direction:
            # Published beforehand, so the adversary knows it: part of the state.
            zeros = [tf.zeros(shape) for shape in self.shapes]
            directed: Any = self.mechanism
            directed.release_direction(zeros, self._fresh_key(), 0)
        self._initial = [variable.numpy() for variable in self._state]

    def _add_variable(
        self,
        shape: Sequence[int],
        dtype: Any,
        name: str,
        initializer: str = "zeros",
        saved: Any = True,
    ) -> Any:
        del saved  # Nothing is saved here.
        variable = keras.Variable(
            initializer, shape=tuple(shape), dtype=dtype, name=name, trainable=False
        )
        self._state.append(variable)
        return variable

    def _fresh_key(self) -> tf.Tensor:
        self._draws += 1
        return tf.random.experimental.stateless_fold_in(
            tf.constant(self._key), self._draws
        )

    def noise(self, draws: int) -> np.ndarray:
        """`[draws, parameters]`: noise of the first release, again and again."""

        @tf.function(jit_compile=self._jit_compile, autograph=False)
        def draw(key: tf.Tensor) -> Any:
            def one(index: int) -> Any:
                seed = tf.random.experimental.stateless_fold_in(key, index)
                step = tf.constant(0, tf.int64)
                return _flat(self.mechanism.draw_noise(self._released, seed, step))

            return tf.map_fn(one, tf.range(draws), fn_output_signature=tf.float32)

        # The concrete function, since TensorFlow warns of "retracing" otherwise.
        return draw.get_concrete_function(_KEY)(self._fresh_key()).numpy()

    def runs(
        self,
        neighbours: Neighbours,
        runs: int,
        steps: int,
        sampling_rate: float,
        stage: str,
    ) -> dict[str, Iterator[tuple[np.ndarray, np.ndarray]]]:
        """What an adversary sees without ("absent") and with the example.

        Args:
            neighbours: The two batches.
            runs: How many independent runs of each.
            steps: Releases in a run; later ones see the state that `refine` left.
            sampling_rate: Probability that the example takes part in a release.
            stage: After which stage the adversary looks.

        Returns:
            For "absent" and "present" an iterator over chunks: `observed`, the
            release minus what the batch without the example sums up to, and
            `shift`, by how much the example would move it. Both broadcast to
            `[chunk, steps, parameters]`.
        """
        chunk = min(runs, max(1, _CHUNK_NUMBERS // (steps * self.num_parameters)))
        simulate = self._compiled(neighbours, chunk, steps, sampling_rate, stage)

        def chunks(included: bool) -> Any:
            for done in range(0, runs, chunk):
                observed, shift = simulate(self._fresh_key(), tf.constant(included))
                size = min(chunk, runs - done)
                yield observed.numpy()[:size], shift.numpy()[:size]

        return {"absent": chunks(False), "present": chunks(True)}

    def _compiled(
        self,
        neighbours: Neighbours,
        chunk: int,
        steps: int,
        sampling_rate: float,
        stage: str,
    ) -> Any:
        """The function of `(key, included)` that makes `chunk` runs."""
        runs = _Runs(self, neighbours, steps, sampling_rate, stage)

        @tf.function(jit_compile=self._jit_compile, autograph=False)
        def simulate(key: tf.Tensor, included: tf.Tensor) -> Any:
            return runs.make(chunk, key, included)

        return simulate.get_concrete_function(_KEY, tf.TensorSpec([], tf.bool))

    def begin(self) -> None:
        """Puts the mechanism into the state in which every run begins."""
        for variable, value in zip(self._state, self._initial, strict=True):
            variable.assign(value)

    @property
    def has_state(self) -> bool:
        return bool(self._state)

    def bounded(self, neighbours: Neighbours) -> tuple[tf.Tensor, tf.Tensor]:
        """The bounded sum without the example, and how far the example moves it."""
        absent, present = (
            _flat(
                self.mechanism.bound(
                    MaterializedGradients(split_rows(tf.constant(rows), self.shapes))
                )
            )
            for rows in (neighbours.absent, neighbours.present)
        )
        return absent, present - absent

    def drawn(self, seed: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        noise = self.mechanism.draw_noise(self._released, seed, step)
        if self.mechanism.remembers_noise:
            self.mechanism.remember_noise(noise, seed, step)
        return _flat(noise)

    def refined(self, noised: tf.Tensor, step: tf.Tensor) -> tf.Tensor:
        parts = split_rows(noised[tf.newaxis], self._released)
        return _flat(self.mechanism.refine([part[0] for part in parts], step))


def _flat(values: Sequence[tf.Tensor]) -> tf.Tensor:
    return tf.concat([tf.reshape(value, [-1]) for value in values], axis=0)


@dataclasses.dataclass(frozen=True)
class _Runs:
    """Independent runs of a mechanism, as ops.

    Attributes:
        simulation: The mechanism, and its state.
        neighbours: The two batches.
        steps: Releases in a run.
        sampling_rate: Probability that the example takes part in a release.
        stage: After which stage the adversary looks.
    """

    simulation: Simulation
    neighbours: Neighbours
    steps: int
    sampling_rate: float
    stage: str

    def make(self, count: int, key: tf.Tensor, included: tf.Tensor) -> Any:
        """What is observed in `count` runs, and the shifts by the example."""
        # Without a past, every run begins in the same state.
        bounds_once = self.steps == 1 or not self.simulation.has_state
        bounded = self.simulation.bounded(self.neighbours) if bounds_once else None

        def numbered_run(index: tf.Tensor) -> Any:
            run_key = tf.random.experimental.stateless_fold_in(key, index)
            observed, shift = self._run(run_key, included, bounded)
            return observed if bounded else (observed, shift)

        seen = tf.map_fn(
            numbered_run,
            tf.range(count),
            fn_output_signature=tf.float32 if bounded else (tf.float32, tf.float32),
            parallel_iterations=1,
        )
        # The same shift in all runs is returned once.
        return (seen, bounded[1][tf.newaxis, tf.newaxis]) if bounded else seen

    @property
    def _refines(self) -> bool:
        """Not after the only release: that cannot change what it reveals."""
        return self.stage == "refine" or self.steps > 1

    def _run(self, key: tf.Tensor, included: tf.Tensor, bounded: Any) -> Any:
        """`[steps, parameters]` twice: what is observed, and the shifts."""
        if self._refines:
            self.simulation.begin()
        if self.steps == 1:
            only = self._release(key, tf.constant(0), included, bounded)
            return tuple(value[tf.newaxis] for value in only)
        return tf.map_fn(
            lambda step: self._release(key, step, included, bounded),
            tf.range(self.steps),
            fn_output_signature=(tf.float32, tf.float32),
            parallel_iterations=1,
        )

    def _release(
        self, key: tf.Tensor, step: tf.Tensor, included: tf.Tensor, bounded: Any
    ) -> tuple[tf.Tensor, tf.Tensor]:
        absent, shift = bounded or self.simulation.bounded(self.neighbours)
        noise_seed, coin_seed = (
            tf.random.experimental.stateless_fold_in(key, 2 * step + part)
            for part in (0, 1)
        )
        coin = tf.random.stateless_uniform([], coin_seed) < self.sampling_rate
        total = absent + tf.where(included & coin, shift, tf.zeros_like(shift))
        step = tf.cast(step, tf.int64)
        observed = total + self.simulation.drawn(noise_seed, step)
        if self._refines:
            refined = self.simulation.refined(observed, step)
            if self.stage == "refine":
                observed = refined
        return observed - absent, shift
