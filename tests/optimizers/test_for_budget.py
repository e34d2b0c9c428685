"""An optimizer for a budget: its training ends at that epsilon."""

import keras
import numpy as np
import pytest

import keras_dp_ext as dp
from keras_dp_ext.accounting import accountants

SIZE, BATCH, EPOCHS, DELTA = 500, 50, 4, 1e-4
PLAN = {
    "num_examples": SIZE,
    "batch_size": BATCH,
    "epochs": EPOCHS,
    "delta": DELTA,
}
GAUSSIAN = ("DPSGD", "DPAdam", "DPAdamW", "TanhSGD", "DirectionalAdam")


def train(optimizer, poisson=True, epochs=EPOCHS, **arguments):
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(optimizer, loss="mse")
    x, y = np.ones([SIZE, 3], "float32"), np.ones([SIZE, 1], "float32")
    data = {"x": x, "y": y, "batch_size": BATCH}
    if poisson:
        data = {"x": dp.data.poisson_batches(x, y, batch_size=BATCH)}
    accountant = dp.callbacks.PrivacyAccountant(delta=DELTA, **arguments)
    model.fit(**data, epochs=epochs, verbose=0, callbacks=[accountant])
    return accountant


@pytest.mark.parametrize("name", GAUSSIAN)
def test_training_ends_at_the_budget(name):
    optimizer = getattr(dp.optimizers, name).for_budget(
        epsilon=2.0, learning_rate=0.05, **PLAN
    )
    assert float(optimizer.learning_rate) == pytest.approx(0.05)
    accountant = train(optimizer, target_epsilon=2.0)
    assert accountant.releases == EPOCHS * SIZE // BATCH
    assert 1.98 < accountant.epsilon <= 2.0


def test_encoding_needs_the_number_of_weights():
    with pytest.raises(ValueError, match=r"num_parameters=model.count_params\(\)"):
        dp.optimizers.EncodedSGD.for_budget(epsilon=2.0, **PLAN)
    optimizer = dp.optimizers.EncodedSGD.for_budget(
        epsilon=2.0, num_parameters=4, noise="laplace", **PLAN
    )
    assert type(optimizer.mechanism.noise) is dp.noise.Laplace
    assert 1.9 < train(optimizer).epsilon <= 2.0


def test_a_mechanism_on_any_other_optimizer():
    cls = dp.optimizers.make_private(keras.optimizers.Lion)
    assert type(cls.for_budget(epsilon=2.0, **PLAN)) is cls


def test_shuffled_arrays():
    optimizer = dp.optimizers.DPSGD.for_budget(epsilon=2.0, sampling="shuffled", **PLAN)
    assert 1.9 < train(optimizer, poisson=False).epsilon <= 2.0


def test_microbatches_of_several_examples_get_twice_the_noise():
    one = dp.optimizers.DPSGD.for_budget(epsilon=2.0, **PLAN)
    two = dp.optimizers.DPSGD.for_budget(epsilon=2.0, num_microbatches=25, **PLAN)
    assert two.mechanism.noise_multiplier == pytest.approx(
        2 * one.mechanism.noise_multiplier, rel=2e-3
    )


def test_adams_own_epsilon_has_another_name_here():
    optimizer = dp.optimizers.DPAdam.for_budget(epsilon=2.0, base_epsilon=1e-4, **PLAN)
    assert optimizer.epsilon == 1e-4


def test_noise_is_not_given_twice():
    with pytest.raises(ValueError, match="is what `for_budget` finds"):
        dp.optimizers.DPSGD.for_budget(epsilon=2.0, noise_multiplier=1.0, **PLAN)


def test_the_budget_of_tf_privacys_names():
    optimizer = dp.tf_privacy.DPKerasSGDOptimizer.for_budget(
        epsilon=2.0, l2_norm_clip=1.0, **PLAN
    )
    assert 1.98 < train(optimizer).epsilon <= 2.0


def test_layers_that_were_adapted_are_within_the_budget():
    rng = np.random.default_rng(0)
    x = rng.normal([0.0, 3.0, 9.0], [1.0, 2.0, 5.0], size=[SIZE, 3]).astype("float32")
    y = x[:, :1] / 5.0
    normalization = dp.data.PrivateNormalization.for_budget(
        epsilon=0.5, delta=DELTA, power=0.5
    )
    normalization.adapt(x)
    event = normalization.claim.proven
    alone = [(event, normalization.sampling, 1)]
    spent = accountants.epsilon(alone, DELTA)
    assert 0.49 < spent <= 0.5
    optimizer = dp.optimizers.DPSGD.for_budget(
        epsilon=2.0, adapted=[normalization], learning_rate=0.05, **PLAN
    )
    layers = [keras.Input([3]), normalization, keras.layers.Dense(1)]
    model = keras.Sequential(layers)
    model.compile(optimizer, loss="mse")
    accountant = dp.callbacks.PrivacyAccountant(delta=DELTA, target_epsilon=2.0)
    lots = dp.data.poisson_batches(x, y, batch_size=BATCH)
    model.fit(lots, epochs=EPOCHS, verbose=0, callbacks=[accountant])
    assert accountant.releases == EPOCHS * SIZE // BATCH
    assert 1.98 < accountant.epsilon <= 2.0


def test_a_layer_that_was_not_adapted_yet_is_no_part_of_a_budget():
    layer = dp.data.PrivateNormalization()
    with pytest.raises(ValueError, match=r"adapt\(\.\.\.\)` first"):
        dp.optimizers.DPSGD.for_budget(epsilon=2.0, adapted=[layer], **PLAN)
    with pytest.raises(ValueError, match="is what `for_budget` finds"):
        dp.data.PrivateNormalization.for_budget(
            epsilon=1.0, delta=DELTA, noise_multiplier=1.0
        )
