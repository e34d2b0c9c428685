"""Masks, loops, time-major layers, files, halves and vocabularies, as users write them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import keras_dp_ext as dp
from tests.third_party.kit import (
    assert_updates,
    batches_of,
    check_fit,
    clipped_mean,
    loop,
    numbers,
    private,
    whole,
)

L = keras.layers
ROWS = 6


def test_padding_and_a_mean_over_unmasked_tokens():
    """0/0 on rows that are all padding: neither in the weights nor in the log."""
    tokens = keras.Input((7,), dtype="int32")
    x = L.Embedding(20, 4)(tokens)
    mask = ops.cast(tokens > 0, "float32")[..., None]
    x = ops.sum(x * mask, axis=1) / ops.sum(mask, axis=1)
    model = keras.Model(tokens, L.Dense(1)(x))
    model.compile(dp.DPSGD(learning_rate=0.1, noise_multiplier=1.0), "mse")
    history = model.fit(
        dp.poisson_batches(1 + whole(19, 40, 7), numbers(40, 1), batch_size=8),
        epochs=2,
        verbose=0,
        callbacks=[keras.callbacks.TerminateOnNaN()],
    ).history
    assert len(history["loss"]) == 2 and np.isfinite(history["loss"]).all()
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


def test_padding_beside_a_mean_over_unmasked_tokens_changes_nothing():
    """The update is that of the examples alone, although padding gives 0/0."""

    def build():
        keras.utils.set_random_seed(0)
        tokens = keras.Input((7,), dtype="int32")
        x = L.Embedding(20, 4)(tokens)
        mask = ops.cast(tokens > 0, "float32")[..., None]
        x = ops.sum(x * mask, axis=1) / ops.sum(mask, axis=1)
        return keras.Model(tokens, L.Dense(1)(x))

    x, y = whole(20, ROWS, 7), numbers(ROWS, 1)
    x[:, 0] = 1
    honest, model = build(), build()
    honest.compile("sgd", "mse")
    expected, clip = clipped_mean(loop(honest, x, y))
    former = [weight.numpy().astype(float) for weight in model.trainable_variables]
    model.compile(private(ROWS, clip), "mse")
    padding = [(0, 3), (0, 0)]
    weights = np.float32([1] * ROWS + [0] * 3)
    data = (np.pad(x, padding), np.pad(y, padding), weights)
    history = model.fit(tf.data.Dataset.from_tensors(data), verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert_updates(model.trainable_variables, former, expected)


class Lambda(L.Layer):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def call(self, x):
        return self.function(x)


def until_three(x):
    return ops.while_loop(
        lambda i, x: i < 3, lambda i, x: (i + 1, ops.tanh(x) + x), (0, x)
    )[1]


def fading_sums(x):
    """As the states of a linear recurrence: the list that a loop reads has a gradient."""

    def step(state, now):
        state = 0.5 * state + now
        return state, ops.tanh(state)

    _, sums = ops.scan(step, ops.zeros_like(x[:, 0]), ops.transpose(x))
    return ops.transpose(sums)


# Not known while tracing.
SWITCH = tf.Variable(1.0, trainable=False)

LOOPS = {
    "fori_loop": lambda x: ops.fori_loop(0, 3, lambda i, x: ops.sin(x) + x, x),
    "while_loop": until_three,
    "cond": lambda x: ops.cond(SWITCH > 0, lambda: until_three(x), lambda: x),
    "cond with products": lambda x: ops.cond(
        SWITCH > 0, lambda: ops.tanh(x) * ops.exp(x), lambda: x
    ),
    "scan": fading_sums,
    "recompute_grad": tf.recompute_grad(lambda x: tf.tanh(x) * x),
    "vectorized_map": lambda x: ops.vectorized_map(lambda row: row * ops.sum(row), x),
}


@pytest.mark.parametrize("name", LOOPS)
def test_control_flow_on_activations(name):
    def build():
        inputs = keras.Input((5,))
        x = Lambda(LOOPS[name])(L.Dense(4)(inputs))
        return keras.Model(inputs, L.Dense(1)(x))

    check_fit(build, numbers(ROWS, 5), numbers(ROWS, 1, seed=1), "mse")


@pytest.mark.parametrize("static", [False, True], ids=["any size", "static"])
def test_time_first_and_back(static):
    """`[time, batch, ...]` for a Dense layer, a normalisation and a recurrence."""

    def build():
        inputs = keras.Input((6, 3))
        x = ops.transpose(inputs, (1, 0, 2))
        x = L.LayerNormalization()(L.Dense(4, activation="tanh")(x))
        x = ops.transpose(x, (1, 0, 2))
        return keras.Model(inputs, L.Dense(1)(L.GRU(3)(x)))

    x, y = numbers(ROWS, 6, 3), numbers(ROWS, 1, seed=1)
    check_fit(build, x, y, "mse", static=static)


class Exponential(L.Layer):
    def call(self, x):
        return ops.reshape(tf.linalg.expm(ops.reshape(x, (-1, 2, 2))), (-1, 4))


class ClippedTogether(L.Layer):
    def call(self, x):
        return tf.clip_by_global_norm([x, ops.square(x)], 1.0)[0][0]


class OneByOne(L.Layer):
    def call(self, x):
        return ops.map(ops.tanh, x)


class AllAtOnce(L.Layer):
    def call(self, x):
        return ops.vectorized_map(ops.tanh, x)


class Experts(L.Layer):
    """As KerasHub's: the load of the experts is averaged over the batch."""

    def __init__(self, coefficient):
        super().__init__(name="mixtral_sparse_moe_block")
        self.coefficient, self.router = coefficient, L.Dense(4, "softmax")

    def build(self, shape):
        self.router.build(shape)

    def call(self, x):
        routes = self.router(x)
        if self.coefficient:
            self.add_loss(self.coefficient * ops.sum(ops.mean(routes, axis=0) ** 2))
        return routes


class Product(L.Layer):
    def __init__(self, equation, shape):
        super().__init__()
        self.equation, self.kernel_shape = equation, shape

    def build(self, shape):
        self.kernel = self.add_weight(shape=self.kernel_shape)

    def call(self, x):
        return ops.einsum(self.equation, x, self.kernel)


def test_einsum_with_axes_left_out():
    """Outputs before and behind other axes, a number for each place, gains."""

    def build():
        inputs = keras.Input((3, 5, 4))
        x = L.Dense(4, activation="tanh")(inputs)
        products = [
            Product("...tk,khe->...hte", (4, 2, 3))(x),
            Product("b...k,kj->b...j", (4, 3))(x),
            Product("...k,k->...", (4,))(x),
            Product("...k,k->...k", (4,))(x),
        ]
        x = L.Concatenate()([L.Flatten()(product) for product in products])
        return keras.Model(inputs, L.Dense(1)(x))

    check_fit(build, numbers(ROWS, 3, 5, 4), numbers(ROWS, 1, seed=1), "mse")


class ExponentialOfEach(L.Layer):
    """As the refusal of `expm` says."""

    def call(self, x):
        y = ops.reshape(x, (-1, 2, 2)) / 64
        y = ops.eye(2) + y + y @ y / 2 + y @ y @ y / 6
        for _ in range(6):
            y = y @ y
        return ops.reshape(y, (-1, 4))


class ClippedEach(L.Layer):
    def call(self, x):
        return tf.clip_by_norm(x, 1.0, axes=[-1])


def mel(**arguments):
    return L.MelSpectrogram(
        fft_length=16, sequence_stride=8, num_mel_bins=4, sampling_rate=100, **arguments
    )


class Decibels(L.Layer):
    def call(self, x):
        return 10 * ops.log10(ops.maximum(x, 1e-10))


def of_features(*layers):
    return lambda: keras.Sequential(
        [keras.Input((5,)), L.Dense(4), *(layer() for layer in layers), L.Dense(1)]
    )


def of_sound(**arguments):
    return lambda: keras.Sequential(
        [
            keras.Input((64,)),
            mel(**arguments),
            *([Decibels()] if arguments else []),
            L.Conv1D(3, 3),
            L.GlobalAveragePooling1D(),
            L.Dense(1),
        ]
    )


# What is refused, what its message says to write, and a model that does it.
REFUSED = {
    "expm": (of_features(Exponential), "fixed number", of_features(ExponentialOfEach)),
    "experts": (
        of_features(lambda: Experts(0.02)),
        "router_aux_loss_coef",
        of_features(lambda: Experts(0.0)),
    ),
    "map": (of_features(OneByOne), "vectorized_map", of_features(AllAtOnce)),
    "norm": (of_features(ClippedTogether), "clip_by_norm", of_features(ClippedEach)),
    "mel": (of_sound(), "power_to_db=False", of_sound(power_to_db=False)),
}


@pytest.mark.parametrize(
    "name",
    [
        *("experts", "map", "norm"),
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("expm", "mel")),
    ],
)
def test_what_looks_at_the_whole_batch_is_told_what_to_write(name):
    """`expm` spoils all matrices if one is infinite; decibels end below the loudest."""
    build, remedy, as_advised = REFUSED[name]
    model = build()
    x, y = numbers(ROWS, *model.input_shape[1:]), numbers(ROWS, 1, seed=1)
    model.compile(private(ROWS), "mse")
    with pytest.raises(ValueError, match=r"mix|decide") as caught:
        model.fit(batches_of(x, y), verbose=0)
    _, found, advice = str(caught.value).partition("What to do")
    assert found and remedy in advice and "BatchNorm" not in advice
    check_fit(as_advised, x, y, "mse")


def hinge(y, p):
    return ops.mean(ops.maximum(1 - y * p, 0), axis=-1)


LOSSES = {
    "Hinge": (keras.losses.Hinge(), "-1 and 1", hinge),
    "Dice": (keras.losses.Dice(), r"Dice\(axis=", keras.losses.Dice(axis=(1,))),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_that_looks_at_the_whole_batch_is_told_another_one(name):
    refused, remedy, as_advised = LOSSES[name]

    def build():
        return keras.Sequential([keras.Input((5,)), L.Dense(4), L.Dense(3, "sigmoid")])

    x, y = numbers(ROWS, 5), 2.0 * whole(2, ROWS, 3) - 1
    model = build()
    model.compile(private(ROWS), refused)
    with pytest.raises(ValueError, match=remedy):
        model.fit(batches_of(x, y), verbose=0)
    check_fit(build, x, y, as_advised)


@pytest.mark.slow
def test_augmentation_that_counts_colours_of_the_batch_is_told_what_to_use():
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), L.RandAugment((0, 1)), L.Flatten(), L.Dense(1)]
    )
    model.compile(private(ROWS), "mse")
    x = np.random.default_rng(0).random((ROWS, 8, 8, 3)).astype("float32")
    with pytest.raises(ValueError, match=r"Equalization.*RandomContrast"):
        model.fit(batches_of(x, numbers(ROWS, 1)), verbose=0)


def test_a_contrastive_loss_is_told_to_compare_rows_with_their_own_negatives():
    """SimCLR's, whose negatives are the other examples."""

    def among_the_batch(y, z):
        scores = ops.matmul(z, ops.transpose(z))
        own = ops.arange(ops.shape(z)[0])
        return keras.losses.sparse_categorical_crossentropy(own, scores, True)

    model = keras.Sequential([keras.Input((5,)), L.Dense(4)])
    model.compile(private(ROWS), among_the_batch)
    with pytest.raises(ValueError, match=r"What to do: .*own pair.*negatives"):
        model.fit(batches_of(numbers(ROWS, 5), whole(2, ROWS)), verbose=0)

    def among_its_own(y, z):
        scores = ops.einsum("bd,bkd->bk", z[:, 0], z[:, 1:])
        return keras.losses.sparse_categorical_crossentropy(y, scores, True)

    def build():
        return keras.Sequential([keras.Input((4, 5)), L.Dense(4)])

    check_fit(build, numbers(ROWS, 4, 5), whole(1, ROWS), among_its_own)


@pytest.mark.parametrize("layer", [L.DepthwiseConv2D, L.SeparableConv2D])
def test_bfloat16_with_depthwise_filters(layer):
    """Against the gradients of float32: those of TensorFlow in bfloat16 are wrong."""
    arguments = (3,) if layer is L.DepthwiseConv2D else (4, 3)

    def build():
        return keras.Sequential(
            [
                keras.Input((8, 8, 3)),
                layer(*arguments, use_bias=True),
                L.GlobalAveragePooling2D(),
                L.Dense(2, dtype="float32"),
            ]
        )

    x, y = numbers(ROWS, 8, 8, 3), numbers(ROWS, 2, seed=1)
    honest = build()
    honest.compile("sgd", "mse")
    expected, clip = clipped_mean(loop(honest, x, y))
    with_policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = build()
        model.set_weights(honest.get_weights())
        former = [weight.numpy().astype(float) for weight in model.trainable_variables]
        model.compile(private(ROWS, clip), "mse")
        model.fit(batches_of(x, y), verbose=0)
    finally:
        keras.config.set_dtype_policy(with_policy)
    # Of 8 bits, in sums of 36 products.
    assert_updates(model.trainable_variables, former, expected, tolerance=0.05)


def test_words_and_classes_of_a_closed_list():
    words = ["red", "green", "blue"]

    def build():
        lookup = L.StringLookup(vocabulary=words, num_oov_indices=0)
        inputs = keras.Input((1,), dtype="string")
        x = L.CategoryEncoding(3, output_mode="one_hot")(lookup(inputs))
        return keras.Model(inputs, L.Dense(3)(x))

    def loss(y, logits):
        return keras.losses.sparse_categorical_crossentropy(
            y - 1, logits, from_logits=True
        )

    check_fit(build, np.array(words * 2)[:, None], 1 + whole(3, ROWS), loss)


def test_numbers_of_a_closed_list():
    """Two inputs, each with a table of its own, beside classes from 1."""

    def build():
        inputs = [keras.Input((2,), dtype="int64"), keras.Input((1,), dtype="int32")]
        codes = {"num_oov_indices": 0, "output_mode": "multi_hot"}
        a = L.IntegerLookup(vocabulary=[10, 20, 30], **codes)(inputs[0])
        b = L.IntegerLookup(vocabulary=[-5, 7], **codes)(inputs[1])
        return keras.Model(inputs, L.Dense(3)(L.Concatenate()([a, b])))

    def loss(y, logits):
        return keras.losses.sparse_categorical_crossentropy(y - 1, logits, True)

    x = (10 + 10 * whole(3, ROWS, 2), 12 * whole(2, ROWS, 1) - 5)
    check_fit(build, x, 1 + whole(3, ROWS), loss)


@pytest.mark.parametrize("poisson", [False, True])
def test_a_mean_over_the_tokens_of_the_batch_is_told_what_to_write(poisson):
    """keras.io's loss for named entities."""

    def loss(y, logits):
        losses = keras.losses.sparse_categorical_crossentropy(
            y, logits, from_logits=True
        )
        mask = ops.cast(y > 0, "float32")
        return ops.sum(losses * mask) / ops.sum(mask)

    model = keras.Sequential([keras.Input((7,)), L.Embedding(20, 4), L.Dense(5)])
    model.compile(private(ROWS), loss)
    x, y = whole(20, ROWS, 7), whole(5, ROWS, 7)
    data = dp.poisson_batches(x, y, batch_size=4) if poisson else batches_of(x, y)
    with pytest.raises(ValueError, match="What to do") as caught:
        model.fit(data, verbose=0)
    assert r"ops.sum(losses * mask, axis=-1)" in str(caught.value)
    assert "BatchNorm" not in str(caught.value)


def test_a_file_of_the_old_format_says_what_to_use(tmp_path):
    model = keras.Sequential([keras.Input((5,)), L.Dense(1)])
    model.compile(private(ROWS), keras.losses.MeanSquaredError())
    model.fit(batches_of(numbers(ROWS, 5), numbers(ROWS, 1)), verbose=0)
    model.save(tmp_path / "model.h5")
    with pytest.raises(ValueError, match=r"\.keras"):
        keras.models.load_model(tmp_path / "model.h5")
