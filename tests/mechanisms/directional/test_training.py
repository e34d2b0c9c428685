"""Directional noise through plain Keras: `compile`, `fit`, save and load."""

import itertools

import keras
import numpy as np
import pytest

import keras_dp_ext as dp
from keras_dp_ext.callbacks.full_batch_direction import FullBatchDirection


def _data(rows=64):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, 12, 12, 1)).astype("float32")
    return x, (x.mean(axis=(1, 2, 3)) > 0).astype("int32")


def _model():
    keras.utils.set_random_seed(1)
    return keras.Sequential(
        [
            keras.Input([12, 12, 1]),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.GroupNormalization(2),
            keras.layers.Flatten(),
            keras.layers.Dense(2),
        ]
    )


def _compile(model, optimizer, **kwargs):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, **kwargs)
    return model


@pytest.mark.parametrize(("jit_compile", "pruning_ratio"), [(False, None), (True, 0.9)])
def test_without_noise_and_clipping_it_is_the_plain_optimizer(
    jit_compile, pruning_ratio
):
    x, y = _data()
    reference = _compile(_model(), keras.optimizers.SGD(0.1))
    private = _compile(
        _model(),
        dp.optimizers.DirectionalSGD(
            learning_rate=0.1,
            noise_multiplier=0.0,
            l2_norm_clip=1e6,
            direction="gradient",
            pruning_ratio=pruning_ratio,
        ),
        jit_compile=jit_compile,
    )
    before = private.get_weights()
    for model in (reference, private):
        model.fit(x, y, batch_size=16, epochs=2, shuffle=False, verbose=0)
    if pruning_ratio is None:
        for ours, theirs in zip(
            private.get_weights(), reference.get_weights(), strict=True
        ):
            np.testing.assert_allclose(ours, theirs, atol=2e-5)
    else:
        # 8 updates of a tenth of the weights each, at most.
        moved = np.mean(
            np.concatenate(
                [
                    np.ravel(a != b)
                    for a, b in zip(private.get_weights(), before, strict=True)
                ]
            )
        )
        assert 0 < moved < 0.85


@pytest.mark.parametrize("direction", ["gradient", "uniform", "adaclip"])
def test_state_travels_with_the_saved_model(tmp_path, direction):
    x, y = _data()
    optimizer = dp.optimizers.DirectionalAdam(
        learning_rate=0.01, direction=direction, noise_multiplier=0.05
    )
    model = _compile(_model(), optimizer)
    model.fit(x, y, batch_size=16, epochs=3, verbose=0)
    (scale,) = [v.numpy() for v in optimizer.variables if v.path.endswith("/scale")]
    assert scale.size == model.count_params()
    assert np.ptp(scale) > 0.01
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras").optimizer
    for ours, theirs in zip(optimizer.variables, loaded.variables, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    assert loaded.get_config() == optimizer.get_config()
    assert loaded.privacy_claim() == optimizer.privacy_claim()


def test_a_lot_is_one_release_with_one_set_of_axes():
    x, y = _data()
    optimizer = dp.optimizers.DirectionalSGD(
        learning_rate=0.1, gradient_accumulation_steps=4, direction="uniform"
    )
    model = _compile(_model(), optimizer)
    seen = []

    class Watch(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            state = {v.path.split("/")[-1]: v for v in optimizer.variables}
            seen.append(state["scale"].numpy())

    model.fit(x, y, batch_size=8, epochs=1, verbose=0, callbacks=[Watch()])
    assert int(optimizer.releases.numpy()) == 2
    changed = [not np.array_equal(a, b) for a, b in itertools.pairwise(seen)]
    # Batches 0-2 and 4-6 only add to the lot; batches 3 and 7 release.
    assert changed == [False, False, True, False, False, False, True]


def _published_optimizer(**kwargs):
    budget = dp.analysis.published_budget(2.0, 1e-5, 64, lot_size=16, epochs=4)
    return dp.optimizers.DirectionalSGD(
        learning_rate=0.01,
        l2_norm_clip=0.1,
        guarantee="published",
        published_budget=budget,
        **kwargs,
    )


def test_published_takes_the_direction_from_the_callback_and_records_its_noise():
    x, y = _data()
    optimizer = _published_optimizer()
    model = _compile(_model(), optimizer)
    model.fit(x, y, 16, epochs=2, verbose=0, callbacks=[FullBatchDirection(x, y, 40)])
    assert all(np.all(np.isfinite(w)) for w in model.get_weights())
    recorded = optimizer.mechanism.recorded_events(1)
    steps = [
        (e, n) for e, n in recorded if isinstance(e, dp.accounting.ComposedRelease)
    ]
    assert sum(n for _, n in steps) == 8
    ledger = dp.accounting.Ledger()
    for event, count in recorded:
        ledger.add(dp.accounting.Claim(event), dp.accounting.Poisson(16 / 64), count)
    proven = ledger.epsilon(0, 1e-5)
    assert proven > 10 * optimizer.mechanism.published_epsilon(8)


@pytest.mark.parametrize("num_microbatches", [None, 8])
def test_the_accountant_reports_what_the_recorded_noise_really_gives(
    num_microbatches,
):
    x, y = _data()
    optimizer = _published_optimizer(num_microbatches=num_microbatches)
    model = _compile(_model(), optimizer)
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-5)
    model.fit(
        dp.data.shuffled_batches(x, y, batch_size=16),
        epochs=2,
        verbose=0,
        callbacks=[dp.callbacks.FullBatchDirection(x, y), accountant],
    )
    group = 1 if num_microbatches is None else 2
    entries = [
        # In the worst case an example is in the quietest release of every epoch.
        (event, dp.accounting.FullBatch(), count)
        for event, count in optimizer.mechanism.recorded_events(group)
    ]
    assert accountant.epsilon == pytest.approx(dp.accounting.epsilon(entries, 1e-5))
    assert accountant.epsilon < float("inf")
    assert accountant.published_epsilon < 2.1
    assert "quietest" in accountant.statement()


def test_the_direction_is_the_gradient_of_all_the_data():
    x, y = _data()
    model = _compile(_model(), _published_optimizer())
    callback = FullBatchDirection(x, y, batch_size=24)
    callback.set_model(model)
    callback.on_train_begin()
    probe = _compile(_model(), keras.optimizers.SGD(1.0))
    before = probe.get_weights()
    probe.fit(x, y, batch_size=64, epochs=1, verbose=0)
    for old, new, ours in zip(
        before, probe.get_weights(), callback._gradient(), strict=True
    ):
        np.testing.assert_allclose(old - new, ours, atol=1e-5)


def test_published_without_the_callback_is_an_error():
    x, y = _data()
    model = _compile(_model(), _published_optimizer())
    with pytest.raises(ValueError, match="FullBatchDirection"):
        model.fit(x, y, batch_size=16, verbose=0)


def test_callback_refuses_optimizers_that_need_no_direction():
    x, y = _data()
    for optimizer in (
        keras.optimizers.SGD(),
        dp.optimizers.DirectionalSGD(learning_rate=0.1),
    ):
        model = _compile(_model(), optimizer)
        with pytest.raises(ValueError, match="FullBatchDirection serves"):
            model.fit(x, y, verbose=0, callbacks=[FullBatchDirection(x, y)])
