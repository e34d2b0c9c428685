"""GANs, masks, loops, time-major layers, files, halves and vocabularies, as users write them."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

import keras_dp_ext as dp
from tests.third_party.kit import batches_of, check_fit, numbers, private, whole

L = keras.layers
ROWS = 6


class GAN(keras.Model):
    """keras.io's DCGAN: real and generated images stacked in one batch."""

    def __init__(self):
        super().__init__()
        self.generator = keras.Sequential(
            [
                keras.Input((4,)),
                L.Dense(32),
                L.Reshape((4, 4, 2)),
                L.Conv2DTranspose(1, 4, strides=2, padding="same"),
            ]
        )
        self.discriminator = keras.Sequential(
            [
                keras.Input((8, 8, 1)),
                L.Conv2D(4, 3, strides=2, activation="relu"),
                L.Flatten(),
                L.Dense(1),
            ]
        )
        self.seeds = keras.random.SeedGenerator(1)
        self.plain = keras.optimizers.SGD(0.1)
        self.built = True

    def call(self, z):
        return self.generator(z)

    def loss_of(self, real, fake):
        both = ops.concatenate([fake, real], axis=0)
        shape = (ops.shape(real)[0], 1)
        labels = ops.concatenate([ops.ones(shape), ops.zeros(shape)], axis=0)
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        return loss(labels, self.discriminator(both))

    def train_step(self, real):
        shape = (ops.shape(real)[0], 4)
        fake = self.generator(keras.random.normal(shape, seed=self.seeds))
        weights = self.discriminator.trainable_weights
        with tf.GradientTape() as tape:
            loss = self.optimizer.scale_loss(self.loss_of(real, fake))
        self.optimizer.apply(tape.gradient(loss, weights), weights)
        weights = self.generator.trainable_weights
        with tf.GradientTape() as tape:
            fake = self.generator(keras.random.normal(shape, seed=self.seeds))
            fooled = ops.mean(ops.softplus(self.discriminator(fake)))
        self.plain.apply(tape.gradient(fooled, weights), weights)
        return {"loss": loss}


def test_a_gan_that_stacks_real_and_generated_is_told_what_to_write():
    model = GAN()
    model.compile(private(ROWS))
    with pytest.raises(ValueError, match=r"loss\(real\) \+ loss\(fake\)"):
        model.fit(batches_of(numbers(ROWS, 8, 8, 1)), verbose=0)


def test_a_gan_with_a_loss_for_each_real_image_trains():
    class Apart(GAN):
        def loss_of(self, real, fake):
            # A fixed number of generated images: a term without data.
            fake = self.generator(keras.random.normal((8, 4), seed=self.seeds))
            real = ops.mean(ops.softplus(-self.discriminator(real)))
            return real + ops.mean(ops.softplus(self.discriminator(fake)))

    model = Apart()
    model.compile(private(ROWS))
    model.fit(batches_of(numbers(ROWS, 8, 8, 1), static=True), verbose=0)
    assert int(model.optimizer.releases) == 1


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


LOOPS = {
    "fori_loop": lambda x: ops.fori_loop(0, 3, lambda i, x: ops.sin(x) + x, x),
    "while_loop": until_three,
    "cond": lambda x: ops.cond(ops.shape(x)[1] > 2, lambda: until_three(x), lambda: x),
    "recompute_grad": tf.recompute_grad(lambda x: tf.tanh(x) * x),
    "vectorized_map": lambda x: ops.vectorized_map(lambda row: row * ops.sum(row), x),
    "time-major": lambda x: ops.transpose(ops.softmax(ops.transpose(x), axis=0)),
}


@pytest.mark.parametrize("name", LOOPS)
def test_control_flow_on_activations(name):
    def build():
        inputs = keras.Input((5,))
        x = Lambda(LOOPS[name])(L.Dense(4)(inputs))
        return keras.Model(inputs, L.Dense(1)(x))

    check_fit(build, numbers(ROWS, 5), numbers(ROWS, 1, seed=1), "mse")


@pytest.mark.parametrize("layer", [L.DepthwiseConv2D, L.SeparableConv2D])
def test_bfloat16_with_depthwise_filters(layer):
    arguments = (3,) if layer is L.DepthwiseConv2D else (4, 3)
    with_policy = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        model = keras.Sequential(
            [
                keras.Input((8, 8, 3)),
                layer(*arguments, use_bias=True),
                L.GlobalAveragePooling2D(),
                L.Dense(2, dtype="float32"),
            ]
        )
        model.compile(private(ROWS), "mse")
        model.fit(batches_of(numbers(ROWS, 8, 8, 3), numbers(ROWS, 2)), verbose=0)
    finally:
        keras.config.set_dtype_policy(with_policy)
    assert int(model.optimizer.releases) == 1


def test_words_and_classes_of_a_closed_list():
    words = ["red", "green", "blue"]
    lookup = L.StringLookup(vocabulary=words, num_oov_indices=0)
    inputs = keras.Input((1,), dtype="string")
    x = L.CategoryEncoding(3, output_mode="one_hot")(lookup(inputs))
    model = keras.Model(inputs, L.Dense(3)(x))

    def loss(y, logits):
        return keras.losses.sparse_categorical_crossentropy(
            y - 1, logits, from_logits=True
        )

    model.compile(private(ROWS), loss)
    x = np.array(words * 2)[:, None]
    model.fit(batches_of(tf.constant(x), 1 + whole(3, ROWS)), verbose=0)
    assert int(model.optimizer.releases) == 1


def test_a_mean_over_the_tokens_of_the_batch_is_told_what_to_write():
    """keras.io's loss for named entities."""

    def loss(y, logits):
        losses = keras.losses.sparse_categorical_crossentropy(
            y, logits, from_logits=True
        )
        mask = ops.cast(y > 0, "float32")
        return ops.sum(losses * mask) / ops.sum(mask)

    model = keras.Sequential([keras.Input((7,)), L.Embedding(20, 4), L.Dense(5)])
    model.compile(private(ROWS), loss)
    with pytest.raises(ValueError, match="What to do") as caught:
        model.fit(batches_of(whole(20, ROWS, 7), whole(5, ROWS, 7)), verbose=0)
    assert "axis" in str(caught.value) and "BatchNorm" not in str(caught.value)


def test_a_file_of_the_old_format_says_what_to_use(tmp_path):
    model = keras.Sequential([keras.Input((5,)), L.Dense(1)])
    model.compile(private(ROWS), keras.losses.MeanSquaredError())
    model.fit(batches_of(numbers(ROWS, 5), numbers(ROWS, 1)), verbose=0)
    model.save(tmp_path / "model.h5")
    with pytest.raises(ValueError, match=r"\.keras"):
        keras.models.load_model(tmp_path / "model.h5")
