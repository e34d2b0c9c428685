"""Attacks on trained models: they work on what remembers, not on what is private."""

import keras
import numpy as np
import pytest
from sklearn import metrics

import keras_dp_ext as dp
from keras_dp_ext.audit import (
    Roc,
    Shadow,
    audit_training,
    membership_inference,
    train_shadows,
)
from keras_dp_ext.audit.confidence import true_positive_bound
from keras_dp_ext.audit.example_losses import example_losses
from keras_dp_ext.audit.membership_inference import likelihood_ratio

FEATURES = 40


def make_data(rng, count):
    """Labels that only memory can explain."""
    x = rng.normal(size=[count, FEATURES]).astype("float32")
    return x, rng.integers(0, 2, count)


def make_model(optimizer="adam"):
    model = keras.Sequential(
        [
            keras.Input([FEATURES]),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(2, activation="softmax"),
        ]
    )
    model.compile(optimizer, loss="sparse_categorical_crossentropy")
    return model


def overfit(x, y):
    model = make_model(keras.optimizers.Adam(0.01))
    model.fit(x, y, epochs=20, batch_size=64, verbose=0)
    return model


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    return make_data(rng, 300), make_data(rng, 300)


def test_an_overfitted_model_gives_its_members_away(data):
    members, non_members = data
    attack = membership_inference(overfit(*members), members, non_members)
    assert attack.auc > 0.65
    assert list(attack.attacks) == ["loss"]
    assert 0 <= attack.summary()["loss"]["tpr_at_fpr_0.001"] <= 1


def test_a_private_model_does_not(data):
    members, non_members = data
    model = make_model(dp.optimizers.DPSGD(learning_rate=0.5, noise_multiplier=4.0))
    model.fit(
        dp.data.poisson_batches(*members, batch_size=100),
        epochs=2,
        verbose=0,
        shuffle=False,
    )
    attack = membership_inference(model, members, non_members)
    assert abs(attack.auc - 0.5) < 0.1


@pytest.mark.slow
def test_shadow_models_sharpen_the_attack():
    """Some examples are easy for every model; shadow models tell which."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=[500, FEATURES]).astype("float32")
    y = (x[:, 0] + 0.5 * rng.normal(size=500) > 0).astype(int)
    members, non_members = (x[:250], y[:250]), (x[250:], y[250:])
    keras.utils.set_random_seed(0)

    def train(x, y):
        model = make_model(keras.optimizers.Adam(0.005))
        model.fit(x, y, epochs=8, batch_size=64, verbose=0)
        return model

    target = train(*members)
    shadows = train_shadows(train, x, y, count=8, verbose=0)
    included = np.stack([shadow.included for shadow in shadows])
    np.testing.assert_array_equal(included.sum(axis=0), 4)
    attack = membership_inference(target, members, non_members, shadows)
    assert attack.attacks["likelihood-ratio"].auc > attack.attacks["loss"].auc
    assert attack.auc > 0.6


def test_shadow_models_must_fit_the_examples(data):
    members, non_members = data
    shadow = Shadow(make_model(), np.ones(3, bool))
    with pytest.raises(ValueError, match="Argument `shadows`"):
        membership_inference(make_model(), members, non_members, [shadow])


def test_likelihood_ratio_is_that_of_two_normal_distributions():
    rng = np.random.default_rng(0)
    included = np.repeat([[True], [False]], 2000, axis=0) & np.ones([4000, 3], bool)
    shadow_logits = np.where(included, 2.0, -1.0) + rng.normal(size=included.shape)
    logits = np.array([-1.0, 0.5, 2.0])
    ratio = likelihood_ratio(logits, shadow_logits, included)
    # (x + 1)^2 / 2 - (x - 2)^2 / 2 for unit variance.
    np.testing.assert_allclose(ratio, 3.0 * logits - 1.5, atol=0.3)
    offline = likelihood_ratio(logits, shadow_logits[2000:], included[2000:])
    np.testing.assert_allclose(offline, logits + 1.0, atol=0.15)
    with pytest.raises(ValueError, match="Argument `included`"):
        likelihood_ratio(logits, shadow_logits, np.ones_like(included))


def test_curve_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    positive = np.round(rng.normal(0.5, size=300), 1)  # With many ties.
    negative = np.round(rng.normal(size=200), 1)
    roc = Roc(positive, negative)
    labels = np.repeat([1, 0], [300, 200])
    scores = np.concatenate([positive, negative])
    assert roc.auc == pytest.approx(metrics.roc_auc_score(labels, scores))
    fpr, tpr, _ = metrics.roc_curve(labels, scores, drop_intermediate=False)
    np.testing.assert_allclose(roc.false_positive_rates, fpr)
    np.testing.assert_allclose(roc.true_positive_rates, tpr)
    assert roc.true_positive_rate_at(0.1) == np.max(tpr[fpr <= 0.1])


def test_example_losses_average_to_what_keras_reports(data):
    (x, y), _ = data
    for loss, target in (
        ("sparse_categorical_crossentropy", y),
        (keras.losses.CategoricalCrossentropy(), np.eye(2, dtype="float32")[y]),
        ("mse", np.eye(2, dtype="float32")[y]),
    ):
        model = make_model()
        model.compile(loss=loss)
        losses = example_losses(model, x, target, batch_size=64)
        assert losses.shape == (300,)
        reported = model.evaluate(x, target, verbose=0)
        assert losses.mean() == pytest.approx(reported, rel=1e-4)


def test_plot_draws_the_bound_above_the_curves(data):
    members, non_members = data
    attack = membership_inference(make_model(), members, non_members)
    axes = attack.plot(epsilon=1.0, delta=1e-5)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    bound = next(line for line in axes.lines if "ruled out" in line.get_label())
    x, y = bound.get_data()
    np.testing.assert_allclose(y, true_positive_bound(x, 1.0, 1e-5))


def test_canaries_show_that_plain_training_is_not_private(data):
    x, y = (np.concatenate(parts) for parts in zip(*data, strict=True))

    def fit(model, x, y):
        model.fit(x, y, epochs=40, batch_size=64, verbose=0)

    keras.utils.set_random_seed(0)
    audit = audit_training(
        lambda: make_model(keras.optimizers.Adam(0.01)),
        x,
        y,
        fit=fit,
        num_canaries=200,
        seed=0,
    )
    assert audit.epsilon > 0.5
    assert audit.verdict == "no claim"
    assert 70 < audit.included.sum() < 130


def test_canaries_hold_against_private_training_through_fit(data):
    x, y = (np.concatenate(parts) for parts in zip(*data, strict=True))
    audit = audit_training(
        lambda: make_model(
            dp.optimizers.DPSGD(learning_rate=0.5, noise_multiplier=1.0)
        ),
        x,
        y,
        batch_size=100,
        epochs=2,
        num_canaries=200,
        seed=0,
        verbose=0,
    )
    assert audit.epsilon <= audit.proven_epsilon < 50
    assert audit.verdict == "holds"


def test_canaries_are_wrong_on_purpose_and_leave_the_rest_alone(data):
    (x, y), _ = data
    seen = []
    audit = audit_training(
        make_model,
        x,
        y,
        fit=lambda model, x, y: seen.append((x, y)),
        num_canaries=100,
        seed=1,
    )
    ((train_x, train_y),) = seen
    truth = {row.tobytes(): label for row, label in zip(x, y, strict=True)}
    wrong = sum(truth[r.tobytes()] != t for r, t in zip(train_x, train_y, strict=True))
    assert wrong == audit.included.sum()
    assert len(train_x) == 200 + wrong
    # A training that does nothing leaves nothing to guess from.
    assert audit.epsilon == 0


def test_canaries_need_labels_or_be_given(data):
    (x, y), _ = data
    with pytest.raises(ValueError, match="Argument `canaries`"):
        audit_training(make_model, x, y.astype("float32"))
    with pytest.raises(ValueError, match="Argument `num_canaries`"):
        audit_training(make_model, x, y, num_canaries=300)
