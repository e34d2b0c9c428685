"""Whatever ties the examples of a batch together is refused, however it hides."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext.gradients import registry
from keras_dp_ext.verification.synthetic_batches import separating_subsets

L = keras.layers
EXAMPLES, FEATURES = 16, 5
MIXES = "mixes the examples"


def data(classes=3):
    generator = np.random.default_rng(1)
    x = generator.normal(size=(EXAMPLES, FEATURES)).astype("float32")
    return x, generator.integers(1, classes, EXAMPLES).astype("int32")


def fit(*layers, x=None, loss="sparse_categorical_crossentropy", **compile_arguments):
    default_x, y = data()
    x = default_x if x is None else x
    dtype = "string" if x.dtype == object else x.dtype.name
    model = keras.Sequential(
        [
            keras.Input(x.shape[1:], dtype=dtype),
            *layers,
            L.Dense(3, activation="softmax"),
        ]
    )
    model.compile(
        dp.optimizers.DPSGD(), loss, **{"jit_compile": False, **compile_arguments}
    )
    pairs = tf.data.Dataset.from_tensor_slices((x, y))
    model.fit(pairs.batch(EXAMPLES, drop_remainder=True), verbose=0)
    return model


def refuses(*layers, **arguments):
    with pytest.raises(ValueError, match=MIXES):
        fit(*layers, **arguments)


def without_batch_mean(x):
    return x - tf.reduce_mean(x, axis=0, keepdims=True)


@pytest.mark.parametrize("rows", [1, 2, 3, 16, 37])
def test_subsets_separate_every_ordered_pair(rows):
    masks = separating_subsets(rows, np.random.default_rng(0))
    assert len(masks) <= 2 * np.ceil(np.log2(rows))
    for kept in range(rows):
        for replaced in range(rows):
            if kept != replaced:
                assert any(mask[kept] and not mask[replaced] for mask in masks)


def isolated_first_node():
    edges = np.eye(EXAMPLES, dtype="float32")
    edges[1:, 0] = 1.0
    return edges


@pytest.mark.parametrize(
    "mix",
    [
        tf.cumsum,
        lambda x: x - x[:1],
        lambda x: x - tf.concat([x[:1], x[:-1]], axis=0),
        lambda x: tf.matmul(tf.constant(isolated_first_node()), x),
        lambda x: x + tf.pad(x[3:4], [[11, EXAMPLES - 12], [0, 0]]),
    ],
    ids=["cumsum", "minus first", "minus previous", "graph", "one pair"],
)
def test_mixing_that_the_first_example_does_not_see_is_refused(mix):
    refuses(L.Lambda(mix))


@pytest.mark.parametrize("ignored", [0, 1])
def test_a_first_example_without_loss_hides_no_mixing(ignored):
    def loss(y, predictions):
        losses = keras.losses.sparse_categorical_crossentropy(y, predictions)
        return tf.where(tf.equal(tf.reshape(y, [-1]), ignored), 0.0, losses)

    refuses(L.Lambda(without_batch_mean), loss=loss)
    fit(loss=loss)


def test_a_gradient_that_is_mixed_only_on_the_way_back_is_refused():
    @tf.custom_gradient
    def centre_gradients(x):
        return tf.identity(x), without_batch_mean

    refuses(L.Lambda(centre_gradients))
    with pytest.raises(ValueError, match="are wrong"):
        fit(L.Dense(4), L.Lambda(centre_gradients))


class Gate(L.Layer):
    """Mixes as soon as its weight is not zero any more."""

    def build(self, shape):
        self.gate = self.add_weight(shape=(), initializer="zeros", trainable=False)

    def call(self, x):
        return x - self.gate * tf.reduce_mean(x, axis=0, keepdims=True)


class ZeroResidual(L.Layer):
    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1],) * 2, initializer="zeros")
        self.gain = self.add_weight(shape=(), initializer="zeros")

    def call(self, x):
        return x + self.gain * tf.matmul(without_batch_mean(x), self.kernel)


@pytest.mark.parametrize("layer", [Gate, ZeroResidual])
def test_mixing_behind_a_weight_that_is_still_zero_is_refused(layer):
    refuses(layer())


def test_the_probe_leaves_the_variables_alone():
    layer = L.Dense(4, kernel_initializer="zeros")
    dropout = L.Dropout(0.5, seed=3)
    seed = dropout.seed_generator.state
    with pytest.raises(ValueError, match=MIXES):
        fit(layer, dropout, Gate())
    assert not layer.kernel.numpy().any()
    np.testing.assert_array_equal(seed.numpy(), [3, 0])


def test_mixing_that_only_large_inputs_show_is_refused():
    def dead_for_small_inputs(x):
        return tf.nn.relu(without_batch_mean(x) - 30.0)

    refuses(L.Lambda(dead_for_small_inputs))
    refuses(L.Lambda(lambda x: x - tf.nn.relu(tf.reduce_max(tf.abs(x)) - 30.0)))


class SometimesMixUp(L.Layer):
    def __init__(self, seed):
        super().__init__()
        self.seeds = keras.random.SeedGenerator(seed)

    def call(self, x, training=False):
        if not training:
            return x
        other = keras.random.shuffle(x, axis=0, seed=self.seeds)
        chance = keras.random.uniform([], seed=self.seeds)
        return x + tf.cast(chance < 0.25, x.dtype) * 0.5 * (other - x)


@pytest.mark.parametrize("seed", range(4))
def test_mixing_that_is_up_to_a_seed_is_refused(seed):
    refuses(SometimesMixUp(seed))


@pytest.mark.parametrize("name", ["MixUp", "CutMix"])
@pytest.mark.parametrize("seed", range(3))
def test_augmentation_that_mixes_examples_is_refused(name, seed):
    images = np.random.default_rng(0).uniform(size=(EXAMPLES, 8, 8, 3))
    refuses(getattr(L, name)(seed=seed), L.Flatten(), x=images.astype("float32"))


@pytest.mark.parametrize("weight", [1e-5, 1e-8])
def test_a_small_loss_hides_no_mixing(weight):
    refuses(L.Lambda(without_batch_mean), loss_weights=weight)
    fit(loss_weights=weight)


def test_a_column_of_integers_by_the_batch_maximum_is_refused():
    class Relative(L.Layer):
        def call(self, column):
            column = tf.cast(column, tf.float32)
            return (column / tf.reduce_max(column))[:, None]

    class Own(L.Layer):
        def call(self, column):
            return tf.cast(column, tf.float32)[:, None]

    column = np.arange(1, EXAMPLES + 1).astype("int32")
    refuses(Relative(), x=column)
    fit(Own(), x=column)


@pytest.mark.parametrize("length", [None, 10])
def test_text_is_padded_to_a_fixed_length_only(length):
    layers = [
        L.TextVectorization(vocabulary=["a", "b"], output_sequence_length=length),
        L.Embedding(4, 3),
        L.GlobalAveragePooling1D(),
    ]
    texts = np.array(["a b a"] * EXAMPLES, dtype=object)
    if length is None:
        refuses(*layers, x=texts)
    else:
        fit(*layers, x=texts)


def test_the_same_graph_with_other_variables_is_probed_again(monkeypatch):
    model = keras.Sequential([keras.Input([FEATURES]), L.Dense(4), L.Dense(3)])
    optimizer = dp.optimizers.DPSGD()
    optimizer.build(model.trainable_variables)

    def step(variables):
        @tf.function
        def traced(x, y):
            losses = keras.losses.sparse_categorical_crossentropy(
                y, model(x), from_logits=True
            )
            optimizer.minimize(losses, variables)

        traced(*map(tf.constant, data()))

    step(model.layers[1].trainable_variables)
    rule = registry.find_rule("MatMul")
    monkeypatch.setitem(
        registry._RULES,
        "MatMul",
        lambda use, d, split: rule(use, tf.reverse(d, [0]), split),
    )
    with pytest.raises(ValueError, match="are wrong"):
        step(model.layers[0].trainable_variables)


def test_a_wrong_rule_for_a_weight_without_gradient_so_far_is_caught(monkeypatch):
    """Behind a last layer of zeros, every gradient agrees."""
    rule = registry.find_rule("MatMul")

    def wrong_for_the_first(use, d, split):
        return rule(use, 1.01 * d if use.variables == (0,) else d, split)

    monkeypatch.setitem(registry._RULES, "MatMul", wrong_for_the_first)
    zeros = L.Dense(4, kernel_initializer="zeros")
    with pytest.raises(ValueError, match="are wrong"):
        fit(L.Dense(4), zeros, L.Dense(4, kernel_initializer="zeros"))
