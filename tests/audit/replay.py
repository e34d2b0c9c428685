"""Replays one release on two neighbouring data sets, with the noise frozen.

The harness trains a small model through Keras' own `train_on_batch`, so that all of
the optimizer takes part: engine, bound, accumulation, replicas, noise, division.
What it looks at is what leaves the optimizer, the change of the weights.
"""

import keras
import numpy as np
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext.audit.excess import excess
from keras_dp_ext.mechanisms.model_noise import standard_normals

FEATURES = 5
LOT = 8
# Relative rounding of sums of a few float32 gradients.
TOLERANCE = 1e-4


def make_model():
    """Two classes, starting at the same weights every time.

    The model begins undecided whatever the input, so that a huge input has a huge
    gradient and the other label the opposite one.
    """
    keras.utils.set_random_seed(0)
    undecided = keras.initializers.RandomNormal(stddev=1e-4, seed=0)
    return keras.Sequential(
        [
            keras.Input([FEATURES]),
            keras.layers.Dense(4, activation="elu"),
            keras.layers.Dense(2, "softmax", kernel_initializer=undecided),
        ]
    )


class Replay:
    """A model and a private optimizer that can be put back to their start.

    Args:
        mechanism: Class of the mechanism.
        strategy: A `tf.distribute` strategy, or `None`.
        base: The Keras optimizer underneath; plain steps of length 1.
        **arguments: Of the optimizer.
    """

    def __init__(
        self, mechanism, strategy=None, base=keras.optimizers.SGD, **arguments
    ):
        self.strategy = strategy or tf.distribute.get_strategy()
        with self.strategy.scope():
            self.model = make_model()
            self.optimizer = dp.optimizers.make_private(base, mechanism)(
                learning_rate=1.0,
                noise_seed=1,
                expected_batch_size=LOT,
                **arguments,
            )
            self.model.compile(self.optimizer, loss="sparse_categorical_crossentropy")
            self.optimizer.build(self.model.trainable_variables)
        self.micro_steps = self.optimizer.gradient_accumulation_steps or 1
        self._snapshot()

    @property
    def num_parameters(self):
        return self.model.count_params()

    def _snapshot(self):
        self._weights = self.model.get_weights()
        self._state = [variable.numpy() for variable in self.optimizer.variables]
        self._counts = [counter.numpy() for counter in self._counters()]

    def _counters(self):
        """Of releases and of noise: no checkpoint sets these back, only a test."""
        return self.optimizer.releases, self.optimizer._noise_source._counter

    def reset(self):
        """Weights, state and noise as they were when the snapshot was taken."""
        self.model.set_weights(self._weights)
        for variable, value in zip(self.optimizer.variables, self._state, strict=True):
            variable.assign(value)
        for counter, value in zip(self._counters(), self._counts, strict=True):
            counter.assign(value)
        # A ledger does not go back with the counter; these releases are not accounted.
        self.optimizer.ledger._account.segments.clear()

    def keep(self, x, y, weights):
        """Makes one release on these data part of the common past."""
        self.reset()
        self._train(x, y, weights)
        self._snapshot()

    def _train(self, x, y, weights):
        if self.strategy.num_replicas_in_sync > 1:
            # `train_on_batch` would hand every replica the whole batch.
            lot = tf.data.Dataset.from_tensor_slices((x, y, weights))
            batches = lot.batch(LOT // self.micro_steps, drop_remainder=True)
            self.model.fit(batches, verbose=0, shuffle=False)
            return
        for part in np.split(np.arange(len(x)), self.micro_steps):
            self.model.train_on_batch(x[part], y[part], sample_weight=weights[part])

    def released(self, x, y, weights):
        """The released sum of one lot: what moved the weights, undone."""
        self.reset()
        before = self._flat_weights()
        self._train(x, y, weights)
        rows = LOT / self.examples_per_microbatch
        return (before - self._flat_weights()) * rows

    @property
    def examples_per_microbatch(self):
        microbatches = self.optimizer.num_microbatches
        batch = LOT // self.micro_steps
        return 1 if microbatches is None else batch // microbatches

    def noise(self, releases):
        """`[releases, parameters]`: what is released when nobody takes part."""
        self.reset()
        x, y, weights = np.zeros([LOT, FEATURES], "float32"), np.zeros(LOT, int), 0.0
        drawn = []
        for _ in range(releases):
            before = self._flat_weights()
            self._train(x, y, np.full(LOT, weights, "float32"))
            drawn.append((before - self._flat_weights()) * LOT)
        return np.stack(drawn) / self.examples_per_microbatch

    def _flat_weights(self):
        parts = [np.ravel(w) for w in self.model.get_weights()]
        return np.concatenate(parts).astype(np.float64)

    def deviation(self):
        """`[parameters]`: standard deviation of Gaussian noise in this state."""
        self.reset()
        shapes = [v.shape for v in self.model.trainable_variables]
        seed = tf.constant([3, 4])
        noise = self.optimizer.mechanism.draw_noise(
            shapes, seed, tf.convert_to_tensor(self.optimizer.releases)
        )
        normals = standard_normals(shapes, seed)
        ratio = [np.ravel(n) / np.ravel(z) for n, z in zip(noise, normals, strict=True)]
        return np.concatenate(ratio).astype(np.float64)

    def excess(self, difference):
        """How many times more than claimed two neighbours differ; at most 1."""
        event = self.optimizer.privacy_claim().proven
        return excess(difference, self.deviation(), event)


def neighbours(kind):
    """`(x, y, present, absent)`: one example, somewhere in the lot, comes or goes.

    Each kind is a way in which the example could do more than it may: by its size,
    by not being a number, by being like the others or opposed to all of them.
    """
    rng = np.random.default_rng(sum(map(ord, kind)))
    x = rng.normal(size=[LOT, FEATURES]).astype("float32")
    y = rng.integers(0, 2, LOT)
    slot = int(rng.integers(LOT))
    if kind == "huge":
        x[slot] *= 1e4
    elif kind == "overflowing":
        x[slot] = 3e38
    elif kind == "tiny":
        x[slot] *= 1e-30
    elif kind == "not a number":
        x[slot, 0] = np.nan
    elif kind == "infinite":
        x[slot, 1] = -np.inf
    elif kind == "duplicated":
        x[:], y[:] = x[slot], y[slot]
    elif kind == "opposed":
        # All others pull together, and so hard that each of them is clipped.
        x[:], y[:] = 1e3 * x[slot], 1
        y[slot] = 0
    elif kind == "overpowering":
        # All others pull together, and one pulls back harder than all of them.
        x[:], y[:] = 10 * x[slot], 1
        x[slot] *= 100
        y[slot] = 0
    else:
        assert kind == "random"
    present = np.ones(LOT, "float32")
    absent = present.copy()
    absent[slot] = 0.0
    without = x.copy()
    without[slot] = 0.0  # Padding is a row of zeros without weight.
    return (x, y, present), (without, y, absent)


KINDS = (
    "random",
    "huge",
    "overflowing",
    "tiny",
    "not a number",
    "infinite",
    "duplicated",
    "opposed",
    "overpowering",
)


def worst_excess(replay, kinds=KINDS):
    """The greatest excess over all kinds of neighbours."""
    worst = 0.0
    for kind in kinds:
        with_example, without_example = neighbours(kind)
        difference = replay.released(*with_example) - replay.released(*without_example)
        assert np.all(np.isfinite(difference)), kind
        worst = max(worst, replay.excess(difference))
    return worst
