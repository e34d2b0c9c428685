"""Data pipelines: who is in which lot how often, and what `map` does to rows."""

import keras
import numpy as np
import tensorflow as tf

import keras_dp_ext as dp
from tests.zoo import kit
from tests.zoo.kit import case


def _fit(data, **arguments):
    model = kit.dense()
    model.compile(kit.private(expected_batch_size=kit.LOT), "mse")
    return kit.fit(model, data, **arguments)


def _fit_sized(data, rows, **arguments):
    """As one does who was told to say how large the data are."""
    model = kit.dense()
    model.compile(kit.private(expected_batch_size=kit.LOT), "mse")
    accountant = kit.accountant(num_examples=rows, batch_size=kit.LOT)
    model.fit(data, verbose=0, callbacks=[accountant], **arguments)
    return model


@case("within", wrong="plain shuffling is refused", adjacency="zero-out")
def shuffled_slices(x, y):
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(100, seed=1)
    return _fit_sized(data.batch(kit.LOT), len(x), epochs=2)


@case("refused", "sampling", wrong="random choices count as one pass")
def generator_of_random_batches(x, y):
    def batches():
        rng = np.random.default_rng()
        while True:
            rows = rng.integers(0, 4, kit.LOT)
            yield x[rows], y[rows]

    return _fit_sized(batches(), len(x), steps_per_epoch=4)


class RandomBatches(keras.utils.PyDataset):
    """Every batch is a random choice, mostly of the same examples."""

    def __init__(self, x, y):
        super().__init__()
        self.x, self.y = x, y

    def __len__(self):
        return 4

    def __getitem__(self, index):
        rows = np.random.default_rng(index).integers(0, 4, kit.LOT)
        return self.x[rows], self.y[rows]


@case("refused", "sampling", wrong="random choices count as one pass")
def sequence_of_random_batches(x, y):
    return _fit_sized(RandomBatches(x, y), len(x))


@case("refused", "sampling", wrong="three rows of one example")
def oversampled_minority(x, y):
    data = tf.data.Dataset.from_tensor_slices((x, y))
    rare = data.take(2).repeat()
    mixed = tf.data.Dataset.sample_from_datasets([data.repeat(), rare], [0.5, 0.5])
    return _fit_sized(mixed.batch(kit.LOT), len(x), steps_per_epoch=4)


@case("refused", "sampling", wrong="one example twice in a batch")
def repeat_before_shuffle(x, y):
    data = tf.data.Dataset.from_tensor_slices((x, y)).repeat().shuffle(100)
    return _fit_sized(data.batch(kit.LOT), len(x), steps_per_epoch=4)


@case("refused", "sampling", wrong="a batch of two passes")
def repeat_before_batch(x, y):
    data = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(100).repeat()
    return _fit_sized(data.batch(kit.LOT), len(x), steps_per_epoch=4)


@case("refused", "sampling", wrong="four windows hold one example")
def overlapping_windows(x, y):
    data = tf.data.Dataset.from_tensor_slices((x, y))
    windows = data.window(kit.LOT, shift=2, drop_remainder=True)
    batches = windows.flat_map(
        lambda a, b: tf.data.Dataset.zip(a.batch(kit.LOT), b.batch(kit.LOT))
    )
    return _fit_sized(batches, len(x))


@case("refused", "sampling", wrong="each example comes twice")
def augmented_by_concatenation(x, y):
    data = tf.data.Dataset.from_tensor_slices((x, y))
    mirrored = data.map(lambda a, b: (-a, b))
    both = data.concatenate(mirrored).shuffle(100).batch(kit.LOT)
    return _fit_sized(both, len(x))


@case("refused", "sampling|num_examples", wrong="the same lots again and again")
def cached_lots(x, y):
    return _fit(kit.lots(x, y).cache().repeat(), steps_per_epoch=8)


@case("refused", "sampling|num_examples", wrong="an example twice in one lot")
def two_lots_as_one(x, y):
    pair = tf.data.Dataset.zip(kit.lots(x, y), kit.lots(x, y))
    joined = pair.map(
        lambda a, b: tuple(tf.concat(both, 0) for both in zip(a, b, strict=True))
    )
    return _fit(joined)


@case("within", wrong="a repeated pipeline repeats its lots", examples=["huge"])
def repeated_lots(x, y):
    return _fit(kit.lots(x, y).repeat(), steps_per_epoch=4)


@case("within", wrong="padding in front of the sampler is an example")
def sampled_data_set_of_slices(x, y):
    rows = tf.data.Dataset.from_tensor_slices((x, y))
    return _fit(dp.data.poisson_batches(rows, batch_size=kit.LOT))


# Functions of `map` behind Poisson lots ------------------------------------


def _mapped(function):
    def train(x, y):
        return _fit(kit.lots(x, y).map(lambda x, y, w: (function(x), y, w)))

    return train


def _mixing(name, function, wrong):
    train = _mapped(function)
    train.__name__ = name
    case("refused", "map", wrong=wrong)(train)


def _column(reduce):
    return lambda v: reduce(v, axis=0, keepdims=True)


_mixing(
    "map_to_the_batch_range",
    lambda v: (
        (v - _column(tf.reduce_min)(v))
        / (_column(tf.reduce_max)(v) - _column(tf.reduce_min)(v) + 1e-6)
    ),
    "one huge example shrinks all others",
)
_mixing(
    "map_divided_by_the_batch_maximum",
    lambda v: v / (1e-6 + tf.reduce_max(tf.abs(v))),
    "one huge example shrinks all others",
)
_mixing(
    "map_without_the_batch_mean",
    lambda v: v - _column(tf.reduce_mean)(v),
    "an example moves all others",
)
_mixing(
    "map_without_the_batch_median",
    lambda v: v - tf.sort(v, axis=0)[v.shape[0] // 2],
    "an example moves all others",
)
_mixing(
    "map_that_sorts_the_batch",
    lambda v: tf.sort(v, axis=0),
    "features of other examples",
)
_mixing(
    "map_of_mixup",
    lambda v: 0.7 * v + 0.3 * tf.roll(v, 1, axis=0),
    "an example is in two rows",
)
_mixing(
    "map_that_mixes_under_noise",
    lambda v: v - _column(tf.reduce_mean)(v) + tf.random.normal(tf.shape(v)),
    "mixing hides in noise",
)
_mixing(
    "map_that_zeroes_the_lot_of_a_huge_example",
    lambda v: tf.where(tf.reduce_any(tf.abs(v) > 1e3), tf.zeros_like(v), v),
    "one example erases all others",
)


@case("found", "fails with the example", wrong="an error tells of one example")
def map_with_an_assertion_about_the_lot(x, y):
    def asserted(v):
        with tf.control_dependencies([tf.debugging.assert_less(tf.abs(v), 1e3)]):
            return tf.identity(v)

    return _mapped(asserted)(x, y)


@case("refused", "map", wrong="labels move to the next example")
def map_that_rolls_the_labels_of_large_rows(x, y):
    def roll(x, y, w):
        large = tf.reduce_max(x) > 50.0
        return x, tf.where(large, tf.roll(y, 1, axis=0), y), w

    return _fit(kit.lots(x, y).map(roll))


@case("within", wrong="honest functions are refused")
def map_of_rows(x, y):
    def scale(v):
        return v / (1.0 + tf.norm(v, axis=1, keepdims=True))

    return _mapped(scale)(x, y)


@case("within", wrong="noise of its own for each row is taken for mixing")
def map_that_adds_noise_to_rows(x, y):
    return _mapped(lambda v: v + tf.random.stateless_normal(v.shape, [1, 2]))(x, y)


@case("within", wrong="constants of the whole data set are taken for mixing")
def map_by_public_constants(x, y):
    return _mapped(lambda v: (v - tf.constant([[0.1, 0.2, 0.3]])) / 2.0)(x, y)


@case("refused", "map|weight", wrong="a row's weight depends on the others'")
def map_that_normalises_the_weights(x, y):
    def normalise(x, y, w):
        return x, y, 6.0 * w / (1e-6 + tf.reduce_sum(w))

    return _fit(kit.lots(x, y).map(normalise))
