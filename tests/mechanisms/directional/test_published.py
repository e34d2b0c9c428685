"""Algorithm 1 as printed against a NumPy reading of it, and its true cost."""

import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext import analysis
from keras_dp_ext.accounting import events
from keras_dp_ext.analysis.published_budget import best_tau
from keras_dp_ext.mechanisms.directional import Directional

SHAPES = [(30, 4), (4,)]
BUDGET = analysis.PublishedBudget(
    epsilon=2.0, delta=1e-5, sampling_rate=0.05, steps=100, split=1 / 4
)


def _flat(tensors):
    return np.concatenate([np.ravel(t) for t in tensors])


def _split(flat):
    return [flat[:120].reshape(30, 4).astype("f4"), flat[120:].astype("f4")]


@pytest.fixture
def published(harness):
    return harness(
        SHAPES, guarantee="published", published_budget=BUDGET, l2_norm_clip=0.5
    )


def _direction(h):
    return _flat([h.state[f"direction_{i}"].numpy() for i in range(2)])


def test_direction_is_clipped_and_noised_with_its_share(published):
    gradient = np.linspace(1, 2, 124)
    noise_deviation = 0.5 * best_tau(0.5, 0.25e-5, 100) ** (-0.5)
    draws = []
    for seed in range(200):
        published.mechanism.release_direction(_split(gradient), [seed, 0], 0)
        draws.append(_direction(published))
    assert np.std(draws) == pytest.approx(noise_deviation, rel=0.02)
    clipped = 0.5 * gradient / np.linalg.norm(gradient)
    error = np.linalg.norm(np.mean(draws, axis=0) - clipped)
    assert error < 1.5 * noise_deviation * np.sqrt(124 / 200)


def test_noise_follows_equations_11_to_13_as_printed(published):
    published.mechanism.release_direction(_split(np.ones(124)), [1, 2], 0)
    reference = analysis.directional_noise(
        _direction(published), BUDGET.gradient_tau, sensitivity=0.5
    )
    deviation = np.std(published.noises(2500), axis=0)
    np.testing.assert_allclose(deviation, reference.standard_deviation, rtol=0.07)


def test_least_noise_of_every_step_is_recorded_and_rounded_down(published):
    exact = []
    rows = [np.zeros((1, *s), "float32") for s in SHAPES]
    for step in range(20):
        published.mechanism.release_direction(_split(np.ones(124)), [step, 2], step)
        exact.append(
            analysis.directional_noise(
                _direction(published), BUDGET.gradient_tau
            ).noise_multiplier
        )
        published.release(rows, [step, 5])
    recorded = published.mechanism.recorded_events(1)
    assert sum(count for _, count in recorded) == 20
    multipliers = sorted(
        event.events[1].noise_multiplier
        for event, count in recorded
        for _ in range(count)
    )
    for ours, true in zip(multipliers, sorted(exact), strict=True):
        assert 0.97 * true < ours <= true
    for event, _ in recorded:
        assert event.events[0] == events.FullBatchRelease(
            events.GaussianRelease(BUDGET.direction_multiplier / 2)
        )
    grouped = published.mechanism.recorded_events(examples_per_microbatch=2)
    assert grouped[0][0].events[1].noise_multiplier == pytest.approx(
        recorded[0][0].events[1].noise_multiplier / 2
    )


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_shuffling_does_not_hide_the_releases_of_the_direction(accountant):
    """Every release of `w` sees everybody, whatever batch goes with it."""
    direction = events.FullBatchRelease(events.GaussianRelease(20.0))
    nothing = events.GaussianRelease(float("inf"))
    step = events.ComposedRelease((direction, nothing))
    ours = dp.accounting.epsilon(
        [(step, dp.accounting.Shuffled(50, 0.02), 100)], 1e-5, accountant
    )
    expected = dp.accounting.epsilon(
        [(events.GaussianRelease(2.0), dp.accounting.FullBatch(), 1)], 1e-5, accountant
    )
    assert ours == pytest.approx(expected, rel=0.01)


def test_a_direction_that_was_made_but_not_used_is_counted_too(published):
    published.mechanism.release_direction(_split(np.ones(124)), [0, 1], 0)
    published.mechanism.release_direction(_split(np.ones(124)), [0, 2], 0)
    published.release([np.zeros((1, *s), "float32") for s in SHAPES], [0, 5])
    counts = {
        type(event): count for event, count in published.mechanism.recorded_events(1)
    }
    assert counts == {events.ComposedRelease: 1, events.FullBatchRelease: 1}


def test_without_a_full_batch_gradient_nothing_is_released(published):
    with pytest.raises(ValueError, match="FullBatchDirection"):
        published.noise([0, 0])
    published.mechanism.release_direction(_split(np.ones(124)), [1, 2], 0)
    assert np.all(np.isfinite(_flat(published.noise([0, 0]))))
    published.step = 1  # The direction was for release 0.
    assert np.all(np.isnan(_flat(published.noise([0, 0]))))


def test_stale_direction_is_not_used_under_xla(published):
    published.mechanism.release_direction(_split(np.ones(124)), [1, 2], 0)

    @tf.function(jit_compile=True)
    def draw(step):
        return published.mechanism.draw_noise(SHAPES, tf.constant([1, 2]), step)

    assert np.all(np.isfinite(_flat(draw(tf.constant(0, tf.int64)))))
    assert np.all(np.isnan(_flat(draw(tf.constant(1, tf.int64)))))


def test_uniform_direction_is_isotropic_and_spends_nothing_on_w(harness):
    h = harness(
        SHAPES,
        guarantee="published",
        published_budget=BUDGET,
        direction="uniform",
        l2_norm_clip=0.5,
    )
    whole = analysis.PublishedBudget(2.0, 1e-5, 0.05, 100, split=0.0)
    deviation = np.std(h.noises(300))
    assert deviation == pytest.approx(0.5 * whole.isotropic_multiplier, rel=0.02)
    claim = h.mechanism.claim(124)
    assert claim.proven == events.GaussianRelease(whole.isotropic_multiplier)
    h.release([np.zeros((1, *s), "float32") for s in SHAPES], [0, 5])
    ((event, count),) = h.mechanism.recorded_events(1)
    assert count == 1
    assert event.noise_multiplier == pytest.approx(whole.isotropic_multiplier, rel=0.03)
    assert event.noise_multiplier <= whole.isotropic_multiplier


def test_claim_before_running_promises_nothing():
    mechanism = Directional(guarantee="published", published_budget=BUDGET.serialize())
    claim = mechanism.claim(124)
    assert claim.proven.events[1] == events.GaussianRelease(0.0)
    assert claim.published.events[1].noise_multiplier == pytest.approx(
        BUDGET.isotropic_multiplier
    )
    assert "guarantee='proven'" in claim.caveat
    assert mechanism.published_epsilon(100) == pytest.approx(2.0, rel=0.01)
    config = mechanism.get_config()
    assert Directional(**config).get_config() == config


@pytest.mark.parametrize(
    ("kwargs", "argument"),
    [
        ({}, "published_budget"),
        ({"published_budget": BUDGET, "direction": "adaclip"}, "direction"),
        (
            {"published_budget": {**BUDGET.serialize(), "split": 0.0}},
            "published_budget",
        ),
    ],
)
def test_published_refuses_what_it_cannot_run(kwargs, argument):
    with pytest.raises(ValueError, match=f"Argument `{argument}`"):
        Directional(guarantee="published", **kwargs)


def test_direction_cannot_be_set_on_a_proven_mechanism(harness):
    h = harness(SHAPES)
    with pytest.raises(ValueError, match="release_direction"):
        h.mechanism.release_direction(_split(np.ones(124)), [0, 0], 0)


def printed_pruning(lots, clip, ratio):
    """Section 6.1 by hand: error feedback, clip, average, prune; before the noise."""
    error = np.zeros(lots[0].shape[1])
    for rows in lots:
        moved = rows + error
        norms = np.linalg.norm(moved, axis=1, keepdims=True)
        total = (moved * np.minimum(1, clip / norms)).sum(axis=0)
        support = np.abs(total) > np.sort(np.abs(total))[int(ratio * total.size) - 1]
        error = np.where(support, 0.0, total) / len(rows)
        yield total, support


def test_pruning_as_printed_feeds_errors_back_and_noises_what_is_left(harness):
    h = harness(
        SHAPES,
        direction="uniform",
        guarantee="published",
        published_budget=BUDGET,
        l2_norm_clip=0.5,
        pruning_ratio=0.75,
    )
    rng = np.random.default_rng(0)
    lots = rng.normal(size=[4, 5, 124]).astype("f4")
    for step, (total, support) in enumerate(printed_pruning(lots, 0.5, 0.75)):
        rows = lots[step]
        # With padding, through which nothing is fed back.
        padded = np.concatenate([rows, np.zeros([2, 124], "f4")])
        parts = [padded[:, :120].reshape(-1, 30, 4), padded[:, 120:]]
        noise = _flat(h.noise([step, 1]))
        released = _flat(h.release(parts, [step, 1]))
        assert support.sum() == 31
        expected = np.where(support, total + noise, 0.0)
        np.testing.assert_allclose(released, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("direction", ["uniform", "gradient"])
def test_pruning_as_printed_has_no_proven_epsilon(direction):
    claim = Directional(
        direction=direction,
        guarantee="published",
        published_budget=BUDGET,
        pruning_ratio=0.9,
    ).claim(num_parameters=124)
    plan = dp.accounting.Poisson(0.05)
    assert dp.accounting.epsilon([(claim.proven, plan, 1)], 1e-5) == np.inf
    assert "Pruning as printed" in claim.caveat


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_fit_with_pruning_as_printed_says_infinite(jit_compile, tmp_path):
    import keras

    model = keras.Sequential([keras.Input([30]), keras.layers.Dense(4)])
    optimizer = dp.optimizers.DirectionalSGD(
        learning_rate=0.1,
        direction="uniform",
        guarantee="published",
        published_budget=BUDGET,
        pruning_ratio=0.75,
    )
    model.compile(optimizer, "mse", jit_compile=jit_compile)
    before = _flat(model.get_weights())
    data = np.random.default_rng(0).normal(size=[40, 30]).astype("f4")
    log = model.fit(
        dp.data.poisson_batches(data, data[:, :4], batch_size=20, steps_per_epoch=1),
        verbose=0,
        callbacks=[dp.callbacks.PrivacyAccountant(delta=1e-3)],
    )
    moved = _flat(model.get_weights()) != before
    assert moved.sum() == 31  # A quarter: the support can be read off the model.
    assert log.history["epsilon"][-1] == np.inf
    assert np.isfinite(log.history["published_epsilon"][-1])
    model.save(tmp_path / "model.keras")
    names = [variable.name for variable in optimizer.variables]
    stored = keras.models.load_model(tmp_path / "model.keras").optimizer
    errors = [v.numpy() for v in stored.variables if "pruning_error" in v.name]
    assert all(np.all(error == 0) for error in errors), names


class Boastful(dp.mechanisms.DPSGD):
    """Releases the exact sum, and claims what DP-SGD claims."""

    releases_data = True

    def build(self, variables, add_variable):
        self._sums = [
            add_variable(
                shape=tuple(v.shape), dtype="float32", name=f"sum_{i}", saved=False
            )
            for i, v in enumerate(variables)
        ]

    def bound(self, gradients):
        sums = super().bound(gradients)
        for variable, value in zip(self._sums, sums, strict=True):
            variable.assign(value)
        return sums

    def refine(self, noised, step):
        return [tf.convert_to_tensor(variable) for variable in self._sums]


@pytest.mark.parametrize("declared", [True, False])
def test_a_mechanism_that_releases_data_has_no_finite_epsilon(declared, monkeypatch):
    """The attack: a mechanism that says so to pass the guard, but claims an epsilon."""
    import keras

    monkeypatch.setattr(Boastful, "releases_data", declared)
    optimizer = dp.optimizers.make_private(keras.optimizers.SGD, mechanism=Boastful)()
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-3)
    lots = dp.data.poisson_batches(np.ones([8, 3]), np.ones([8, 1]), batch_size=4)
    if not declared:
        with pytest.raises(ValueError, match="from the data"):
            model.fit(lots, verbose=0, callbacks=[accountant])
        return
    log = model.fit(lots, verbose=0, callbacks=[accountant])
    assert log.history["epsilon"][-1] == np.inf
