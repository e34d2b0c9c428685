"""Trainings that do nothing wrong: they must run, and keep to their claim."""

import keras
import numpy as np
import tensorflow as tf

import keras_dp_ext as dp
from tests.zoo import kit
from tests.zoo.kit import case

_TOO_MUCH = "one example moves the sum by more than the clip norm"


@case("within", wrong=_TOO_MUCH, examples=["twin", "huge", "overflowing", "infinite"])
def plain_poisson(x, y):
    return kit.train(kit.dense(), x, y)


@case("within", wrong=_TOO_MUCH, examples=["huge"])
def plain_poisson_under_xla(x, y):
    return kit.train(kit.dense(), x, y, jit_compile=True)


@case("within", wrong=_TOO_MUCH, adjacency="zero-out", examples=["opposed"])
def plain_arrays(x, y):
    model = kit.dense()
    model.compile(kit.private(), "mse")
    return kit.fit(model, x, y, batch_size=5, epochs=2)


@case("within", wrong="an example pushes another one out of its batch")
def shuffled_lots(x, y):
    model = kit.dense()
    model.compile(kit.private(), "mse")
    lots = dp.data.shuffled_batches(x, y, batch_size=kit.LOT)
    return kit.fit(model, lots, epochs=2)


@case("within", wrong="draws of one example are not counted", adjacency="zero-out")
def draws_with_replacement(x, y):
    model = kit.dense()
    model.compile(kit.private(), "mse")
    lots = dp.data.with_replacement_batches(x, y, batch_size=kit.LOT)
    return kit.fit(model, lots)


@case("within", wrong=_TOO_MUCH)
def adam(x, y):
    return kit.train(kit.dense(), x, y, dp.optimizers.DPAdam(noise_multiplier=1.0))


@case("within", wrong="a bounded row is not dominated by any vector of the codebook")
def encoded(x, y):
    optimizer = dp.optimizers.EncodedSGD(learning_rate=0.1, denoise=None)
    return kit.train(kit.dense(), x, y, optimizer)


@case("within", wrong="clip and noise use different ellipsoids")
def directional(x, y):
    return kit.train(kit.dense(), x, y, dp.optimizers.DirectionalSGD(learning_rate=0.1))


@case("within", wrong="the filter's range is taken for the sensitivity")
def tanh(x, y):
    return kit.train(kit.dense(), x, y, dp.optimizers.TanhSGD(learning_rate=0.1))


@case("within", wrong="noise in every batch, or a release for every batch")
def gradient_accumulation(x, y):
    model = kit.dense()
    model.compile(kit.private(gradient_accumulation_steps=2), "mse")
    return kit.fit(model, kit.lots(x, y, accumulation_steps=2))


@case("within", wrong="a microbatch that changes counts as one that is added")
def microbatches(x, y):
    return kit.train(kit.dense(), x, y, kit.private(num_microbatches=8))


@case("within", wrong="weights act after the clip", adjacency="zero-out")
def class_weights(x, y):
    del y
    model = kit.dense(3, "softmax")
    model.compile(kit.private(), "sparse_categorical_crossentropy")
    labels = np.arange(len(x)) % 3
    return kit.fit(model, x, labels, batch_size=8, class_weight={0: 1e3, 1: 1, 2: 5})


@case("within", wrong="weights act after the clip")
def sample_weights(x, y):
    model = kit.dense()
    model.compile(kit.private(), "mse")
    return kit.fit(model, kit.lots(x, y, sample_weight=np.full(len(x), 1e6, "f")))


@case("within", wrong="the penalty is clipped with the rows, or noised away")
def weight_penalties(x, y):
    l2 = keras.regularizers.L2(0.1)
    model = keras.Sequential(
        [keras.Input([kit.FEATURES]), keras.layers.Dense(1, kernel_regularizer=l2)]
    )
    return kit.train(model, x, y)


@case("within", wrong="rows share what is drawn at random")
def dropout(x, y):
    model = kit.functional(
        lambda inputs: keras.layers.Dense(1)(keras.layers.Dropout(0.5)(inputs))
    )
    return kit.train(model, x, y)


@case("within", wrong="one NaN erases the others", examples=["not a number", "huge"])
def layer_normalization(x, y):
    model = kit.functional(
        lambda inputs: keras.layers.Dense(1)(keras.layers.LayerNormalization()(inputs))
    )
    return kit.train(model, x, y)


@case("within", wrong="two outputs, two clips", examples=["opposed"])
def several_outputs(x, y):
    inputs = keras.Input([kit.FEATURES])
    hidden = keras.layers.Dense(4, activation="tanh")(inputs)
    model = keras.Model(
        inputs,
        {"a": keras.layers.Dense(1)(hidden), "b": keras.layers.Dense(1)(hidden)},
    )
    model.compile(kit.private(), loss={"a": "mse", "b": "mae"})
    return kit.fit(model, kit.lots(x, {"a": y, "b": -y}))


@case("within", wrong="frozen weights are part of the norm, or change")
def frozen_layers(x, y):
    model = kit.dense()
    model.layers[0].trainable = False
    return kit.train(model, x, y)


@case("within", wrong="the low-rank weights are not seen", examples=["opposed"])
def low_rank_adaptation(x, y):
    model = kit.dense()
    model.layers[0].enable_lora(2)
    return kit.train(model, x, y)


@case("within", wrong="averages of noised weights count as data")
def averaged_weights(x, y):
    return kit.train(kit.dense(), x, y, kit.private(use_ema=True))


@case("within", wrong="several steps in one call are one release")
def several_steps_per_execution(x, y):
    return kit.train(kit.dense(), x, y, steps_per_execution=2)


@case("within", wrong="an epoch of batches counts as one lot", adjacency="zero-out")
def train_on_batch_loop(x, y):
    model = kit.dense()
    model.compile(kit.private(expected_batch_size=8), "mse")
    for start in range(0, len(x), 8):
        model.train_on_batch(x[start : start + 8], y[start : start + 8])
    return model


@case("within", wrong="losses of the batch instead of the example")
def minimize_in_a_function(x, y):
    model, optimizer = kit.dense(), kit.private()
    lots = kit.lots(x, y)

    @tf.function
    def step(x, y, weight):
        losses = weight * keras.losses.mean_squared_error(y, model(x))
        optimizer.minimize(losses, model.trainable_variables)

    optimizer.expected_batch_size = lots.dp_sampling.expected_batch_size
    optimizer.build(model.trainable_variables)
    optimizer.declare_sampling(lots.dp_sampling.sampling)
    for lot in lots:
        step(*lot)
    return optimizer


@case(
    "within",
    wrong="token embeddings are not clipped with the rest",
    data=kit.tokens,
    examples=["least", "greatest"],
)
def embeddings(x, y):
    model = keras.Sequential(
        [
            keras.Input([6], dtype="int32"),
            keras.layers.Embedding(10, 3),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(1),
        ]
    )
    return kit.train(model, x, y)


@case("within", wrong="states of several examples flow into each other")
def recurrent(x, y):
    model = keras.Sequential(
        [
            keras.Input([kit.FEATURES]),
            keras.layers.Reshape([kit.FEATURES, 1]),
            keras.layers.GRU(2),
            keras.layers.Dense(1),
        ]
    )
    return kit.train(model, x, y)
