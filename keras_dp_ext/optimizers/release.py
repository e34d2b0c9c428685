"""From bounded sums to the noised average: lots, replicas, noise, refinement."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from keras_dp_ext._compat import tf_internals
from keras_dp_ext.mechanisms.base import Mechanism
from keras_dp_ext.noise import secure, uniform
from keras_dp_ext.optimizers.noise_source import NoiseSource
from keras_dp_ext.verification.state_guard import released

# Takes the averages and their variables: the base optimizer's own update.
Update = Callable[[list[tf.Tensor], Sequence[keras.Variable]], None]


class Release:
    """One noised update for each lot, on any number of batches and replicas.

    Args:
        mechanism: Draws and refines the noise.
        noise_source: Seeds of the noise.
        releases: Counter of releases; grows by one with each.
        run_start: What it was when the run under way began, for noise that depends on
            that of former releases.
        accumulation_steps: Batches in a lot.
        secure_noise: Whether noise is drawn from a cryptographic generator.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        noise_source: NoiseSource,
        releases: keras.Variable,
        run_start: keras.Variable,
        accumulation_steps: int,
        secure_noise: bool,
    ):
        self._mechanism = mechanism
        self._noise_source = noise_source
        self._releases = releases
        self._run_start = run_start
        self._secure_noise = secure_noise
        self.accumulation_steps = accumulation_steps
        self.micro_step: keras.Variable | None = None
        self.lot: list[keras.Variable] = []
        self._lot_of: dict[int, keras.Variable] = {}
        self._statistics: list[keras.Variable] = []

    def build(
        self, variables: Sequence[keras.Variable], add_variable: Callable
    ) -> None:
        """Makes the sums of a lot that is spread over several batches."""
        if self.accumulation_steps == 1:
            return
        self.micro_step = add_variable(
            shape=(), dtype="int64", name="micro_step", initializer="zeros"
        )
        for variable in variables:
            accumulator = add_variable(
                shape=variable.shape,
                dtype="float32",
                name="lot_accumulator",
                initializer="zeros",
            )
            self.lot.append(accumulator)
            self._lot_of[id(variable)] = accumulator
        for shape in self._mechanism.statistics():
            accumulator = add_variable(
                shape=shape,
                dtype="float32",
                name="lot_statistic",
                initializer="zeros",
            )
            self.lot.append(accumulator)
            self._statistics.append(accumulator)

    def precision(self) -> contextlib.AbstractContextManager[None]:
        """The precision of a mechanism's memory of noise: that in which noise is drawn."""
        if not self._secure_noise:
            return contextlib.nullcontext()
        return uniform.drawing_from(secure.repeatable_stream, secure.REPEATABLE_SEED)

    @property
    def unfinished(self) -> list[keras.Variable]:
        """What holds sums that are not noised yet."""
        return [] if self.micro_step is None else [self.micro_step, *self.lot]

    def discard_unfinished_lot(self) -> None:
        """Forgets the batches of a lot that is not complete, if there are any."""
        for variable in self.unfinished:
            variable.assign(tf.zeros(variable.shape, variable.dtype))

    def add_batch(
        self,
        sums: Sequence[tf.Tensor],
        penalties: Sequence[tf.Tensor],
        variables: Sequence[keras.Variable],
        expected_rows: float,
        update: Update,
    ) -> None:
        """Sums over replicas, then releases once for all of them, if due.

        Args:
            sums: Bounded gradients, summed over the rows of this batch, and the
                mechanism's statistics behind them.
            penalties: Gradients that depend on the weights only, or nothing.
            variables: What `sums` are gradients of.
            expected_rows: The public number of rows of a lot.
            update: Called with the averages.
        """

        def add(totals: Any, kept: Any, penalties: Any) -> None:
            self._add_noised(
                totals,
                variables,
                lambda lot: self._release(
                    lot, kept, penalties, variables, expected_rows, update
                ),
            )

        strategy = tf.distribute.get_strategy()
        context = tf.distribute.get_replica_context()
        noise, kept = self._noise_if_due(sums)
        if strategy.num_replicas_in_sync == 1 or context is None:
            add(_added(sums, noise), kept, penalties)
            return
        first = tf.equal(context.replica_id_in_sync_group, 0)
        # Noise joins on one replica only: after the reduction there is one draw,
        # the same on all replicas and workers, whatever the distribution.
        noise = [tf.where(first, value, tf.zeros_like(value)) for value in noise]
        totals = _all_reduced(context, _added(sums, noise))

        def add_once(distribution: Any, *per_replica: Sequence[Any]) -> None:
            # Only the first replica's noise has joined, so that is what is kept.
            add(*([_first_local(distribution, v) for v in vs] for vs in per_replica))

        tf_internals.merge_call(add_once, strategy, totals, kept, penalties)

    # Noise --------------------------------------------------------------------

    def _is_due(self) -> tf.Tensor:
        """Whether the batch under way completes a lot."""
        step = tf.convert_to_tensor(self.micro_step)
        return tf.equal(step % self.accumulation_steps, self.accumulation_steps - 1)

    def _step(self) -> tf.Tensor:
        """The number of the release, as the mechanism's noise counts it."""
        step = tf.convert_to_tensor(self._releases)
        if self._mechanism.remembers_noise:
            step -= tf.convert_to_tensor(self._run_start)
        return step

    def _noise_if_due(
        self, sums: Sequence[tf.Tensor]
    ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """The noise, and what has to be remembered of it once it is released."""
        shapes = [value.shape for value in sums]
        step = self._step()
        remembers = self._mechanism.remembers_noise
        if self._secure_noise and remembers:
            seed = self._noise_source.repeatable_seed()
            noise = self._draw_secure(secure.repeatable_stream, shapes, seed, step)
        elif self._secure_noise:
            seed = self._noise_source.seed()
            words = secure.stream(self._noise_source.key())
            noise = self._draw_secure(words, shapes, seed, step)
        else:
            seed = self._noise_source.seed()
            # Not before the sums are there: what they are made of is freed by then.
            with tf.control_dependencies(list(sums)):
                late = tf.identity(seed)
            noise = self._mechanism.draw_noise(shapes, late, step)
        kept = [seed, *noise] if remembers else []
        if self.accumulation_steps == 1:
            return noise, kept
        due = self._is_due()
        return [tf.where(due, value, tf.zeros_like(value)) for value in noise], kept

    def _draw_secure(
        self, words: Any, shapes: Sequence[Any], seed: tf.Tensor, step: tf.Tensor
    ) -> list[tf.Tensor]:
        """A draw of the mechanism in float64, from the given source of words."""
        with uniform.drawing_from(words):
            noise = self._mechanism.draw_noise(shapes, seed, step)
        if any(value.dtype != tf.float64 for value in noise):
            raise ValueError(
                "Argument `secure_noise` needs a mechanism that draws from "
                "`keras_dp_ext.noise` in its precision. Received: "
                f"{type(self._mechanism).__name__} with noise of "
                f"{[value.dtype.name for value in noise]}"
            )
        return noise

    def _grid_scales(self, shapes: Sequence[Any], step: tf.Tensor) -> list[tf.Tensor]:
        """How large the noise is in each coordinate, for the grid: nothing private."""
        deviation = self._mechanism.fresh_deviation()
        if deviation is not None:
            return [
                tf.fill(shape, tf.constant(deviation, tf.float64)) for shape in shapes
            ]
        seed = tf.zeros([2], tf.int32)  # The words are constants.
        return self._draw_secure(secure.constant_words, shapes, seed, step)

    # Lots ---------------------------------------------------------------------

    def _add_noised(
        self,
        noised: list[tf.Tensor],
        variables: Sequence[keras.Variable],
        release: Callable[[list[tf.Tensor]], None],
    ) -> None:
        """Adds a batch to its lot, and calls `release` where that completes it."""
        if self.accumulation_steps == 1:
            release(noised)
            return
        lot = [self._lot_of[id(variable)] for variable in variables]
        lot += self._statistics
        totals = _added(lot, noised)

        def finish() -> Any:
            release(totals)
            for accumulator in lot:
                accumulator.assign(tf.zeros(accumulator.shape))
            return tf.constant(0)

        def keep() -> Any:
            for accumulator, value in zip(lot, totals, strict=True):
                accumulator.assign(tf.cast(value, tf.float32))
            return tf.constant(0)

        tf.cond(self._is_due(), finish, keep)
        self.micro_step.assign_add(1)

    def _release(
        self,
        noised: list[tf.Tensor],
        kept: list[tf.Tensor],
        penalties: Sequence[tf.Tensor],
        variables: Sequence[keras.Variable],
        expected_rows: float,
        update: Update,
    ) -> None:
        """Refines what has been noised and hands the average on."""
        noised = released(noised)
        step = tf.convert_to_tensor(self._releases)
        if self._secure_noise:
            scales = self._grid_scales([value.shape for value in noised], step)
            noised = [secure.snap(*pair) for pair in zip(noised, scales, strict=True)]
        self._mechanism.use_lot_size(expected_rows)
        refined = self._mechanism.refine(noised, step)
        if self._mechanism.releases_data:
            refined = released(refined)
        averages = _divided(refined, expected_rows)
        if penalties:
            averages = _added(averages, penalties)
        averages = [
            tf.cast(value, variable.dtype)
            for value, variable in zip(averages, variables, strict=True)
        ]
        if kept:
            seed, *noise = kept
            self._mechanism.remember_noise(noise, seed, self._step())
        self._releases.assign_add(1)
        update(averages, variables)


def _added(values: Any, others: Any) -> list[tf.Tensor]:
    """Sums in the precision of `others`."""
    return [
        tf.cast(value, other.dtype) + other
        for value, other in zip(values, others, strict=True)
    ]


def _divided(values: Sequence[tf.Tensor], number: float) -> list[tf.Tensor]:
    """Divides by one tensor for each precision, not by one for each variable."""
    numbers = {dtype: tf.cast(number, dtype) for dtype in {v.dtype for v in values}}
    return [value / numbers[value.dtype] for value in values]


def _all_reduced(context: Any, values: list[tf.Tensor]) -> list[tf.Tensor]:
    """The sums over replicas, by one collective: two could wait for each other."""
    flat = tf.concat([tf.reshape(value, [-1]) for value in values], axis=0)
    total = context.all_reduce(tf.distribute.ReduceOp.SUM, flat)
    sizes = [value.shape.num_elements() for value in values]
    return [
        tf.reshape(piece, value.shape)
        for piece, value in zip(tf.split(total, sizes), values, strict=True)
    ]


def _first_local(strategy: Any, value: Any) -> Any:
    return strategy.experimental_local_results(value)[0]
