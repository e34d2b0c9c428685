"""Views of an example make one loss, and cost what the example costs alone."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp

RNG = np.random.default_rng(0)
X = RNG.normal(size=[40, 6, 6, 1]).astype("float32")
Y = RNG.integers(0, 3, size=40).astype("int32")
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def inner():
    keras.utils.set_random_seed(0)
    return keras.Sequential(
        [keras.Input([6, 6, 1]), keras.layers.Flatten(), keras.layers.Dense(3)]
    )


def trained(views, x=X, clip=0.5, noise=0.0, **compiling):
    """All examples in each lot, without noise, so that trainings can be compared."""
    lots = dp.data.poisson_batches(x, Y, batch_size=len(x))
    model = one = inner()
    if views:
        lots = dp.data.augmented(lots, views)
        model = keras.Sequential(
            [keras.Input([len(views), 6, 6, 1]), dp.data.EachView(one)]
        )
    start = [w.numpy() for w in one.trainable_variables]
    optimizer = dp.optimizers.DPSGD(
        learning_rate=1.0, l2_norm_clip=clip, noise_multiplier=noise
    )
    model.compile(optimizer, LOSS, **compiling)
    model.fit(lots, epochs=1, verbose=0)
    moved = [
        (w - s).numpy().ravel()
        for w, s in zip(one.trainable_variables, start, strict=True)
    ]
    return model, np.concatenate(moved)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_views_that_are_alike_change_nothing(jit_compile):
    _, plain = trained([])
    _, same = trained([tf.identity] * 3, jit_compile=jit_compile)
    np.testing.assert_allclose(same, plain, atol=1e-5)


def test_an_example_adds_the_clipped_gradient_of_the_mean_of_its_losses():
    views = [tf.identity, tf.image.flip_left_right]
    _, moved = trained(views)
    model = inner()
    total = 0.0
    for x, y in zip(X, Y, strict=True):
        with tf.GradientTape() as tape:
            both = tf.concat([x[np.newaxis], x[np.newaxis, :, ::-1]], axis=0)
            loss = tf.reduce_mean(
                keras.losses.sparse_categorical_crossentropy(
                    np.array([y, y]), model(both), from_logits=True
                )
            )
        gradients = tape.gradient(loss, model.trainable_variables)
        flat = np.concatenate([g.numpy().ravel() for g in gradients])
        total = total + flat * min(1.0, 0.5 / np.linalg.norm(flat))
    np.testing.assert_allclose(moved, -total / len(X), atol=1e-5)


def test_a_canary_moves_the_sum_by_one_clip_however_many_views_it_has():
    views = [tf.identity, tf.image.flip_left_right, lambda x: -x, lambda x: 100.0 * x]
    canary = X.copy()
    canary[0] *= 1e3
    removed = X.copy()
    removed[0] = 0.0
    distance = np.linalg.norm(trained(views, canary)[1] - trained(views, removed)[1])
    # An example in place of another: two clips, of the sum that is divided by 40.
    assert 0 < distance <= 2 * 0.5 / len(X) * (1 + 1e-4)


def test_epsilon_is_that_of_the_lots_without_views():
    lots = dp.data.poisson_batches(X, Y, batch_size=8)
    views = dp.data.augmented(lots, [tf.identity, tf.image.flip_left_right])
    assert dp.data.sampling_of(views) == dp.data.sampling_of(lots)
    model = keras.Sequential([keras.Input([2, 6, 6, 1]), dp.data.EachView(inner())])
    model.compile(dp.optimizers.DPSGD(noise_multiplier=2.0), LOSS)
    model.fit(views, verbose=0)
    expected = dp.accounting.epsilon(
        [(dp.accounting.GaussianRelease(2.0), lots.dp_sampling.sampling, 5)], 1e-5
    )
    assert dp.accounting.epsilon_of(model, 1e-5) == pytest.approx(expected, rel=1e-6)


def test_a_view_that_mixes_examples_is_refused():
    with pytest.raises(ValueError):
        trained([lambda x: x - tf.reduce_mean(x, axis=0, keepdims=True)])


def test_it_is_saved(tmp_path):
    model, _ = trained([tf.identity, tf.image.flip_left_right])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    x = np.stack([X, X], axis=1)
    np.testing.assert_allclose(
        loaded.predict(x, verbose=0), model.predict(x, verbose=0)
    )
