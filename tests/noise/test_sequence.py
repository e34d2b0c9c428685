"""Noises of several families in one training: what is drawn is what is accounted."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

import keras_dp_ext as dp
from keras_dp_ext import accounting
from keras_dp_ext.noise import Gaussian, NoiseSequence, StudentT, get_any

MIXED = {0: Gaussian(0.5), 2: StudentT(9, 20.0)}
SIZE = 3000


def test_the_graph_and_the_account_agree_on_every_release():
    sequence = NoiseSequence((0, 2, 5), (Gaussian(1.0), StudentT(9, 2.0), Gaussian(3)))

    @tf.function(jit_compile=True, autograph=False)
    def scale(step):
        return sequence.select(step, lambda noise: tf.constant(noise.scale))

    executed = [float(scale(tf.constant(i, tf.int64))) for i in range(8)]
    assert executed == [sequence.at(i).scale for i in range(8)]
    assert executed == [1, 1, 2, 2, 2, 3, 3, 3]


def test_sequences_survive_json_and_come_from_dictionaries():
    sequence = get_any({100: "student-t", 0: Gaussian(2.0)})
    assert sequence == NoiseSequence((0, 100), (Gaussian(2.0), StudentT()))
    assert get_any(json.loads(json.dumps(sequence.serialize()))) == sequence
    louder = sequence.with_scale(6.0)
    assert [noise.scale for noise in louder.noises] == [6.0, 3.0]


@pytest.mark.parametrize("noises", [{1: "gaussian"}, {0: "tree"}, {0: 3.0}])
def test_sequences_without_an_epsilon_are_refused(noises):
    with pytest.raises(ValueError, match="Argument"):
        get_any(noises)


def fit(noise, steps, jit_compile=False, **arguments):
    """What `steps` updates of a model without gradients added: pure noise."""
    model = keras.Sequential(
        [keras.Input([1]), keras.layers.Dense(SIZE, use_bias=False)]
    )
    optimizer = dp.optimizers.EncodedSGD(
        learning_rate=1.0, noise=noise, noise_seed=1, **arguments
    )
    model.compile(optimizer, "mse", jit_compile=jit_compile)
    updates = []

    class Record(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            weights = np.concatenate([w.ravel() for w in model.get_weights()])
            updates.append(weights)

    before = np.concatenate([w.ravel() for w in model.get_weights()])
    zeros = np.zeros([4 * steps, 1], np.float32)
    model.fit(
        zeros,
        np.zeros([4 * steps, SIZE]),
        batch_size=4,
        verbose=0,
        callbacks=[Record()],
    )
    return model, -4 * np.diff(np.stack([before, *updates]), axis=0)


@pytest.mark.parametrize("jit_compile", [False, True], ids=["graph", "xla"])
def test_fit_draws_from_each_family_in_turn(jit_compile):
    _, updates = fit(MIXED, steps=4, jit_compile=jit_compile, denoise=None)
    for release, update in enumerate(updates):
        law = stats.norm(scale=0.5) if release < 2 else stats.t(9, scale=20.0)
        assert stats.kstest(update, law.cdf).pvalue > 1e-3, release
    # No draw is used twice.
    assert abs(np.corrcoef(updates[0], updates[1])[0, 1]) < 0.1


def test_denoising_compares_with_the_family_of_the_release():
    model, updates = fit(MIXED, steps=4)
    noised = updates[-1] / model.optimizer.mechanism.denoising_factor
    found = stats.kstest(noised, stats.t(9, scale=20.0).cdf).statistic
    assert model.optimizer.mechanism.denoising_factor == pytest.approx(found, rel=1e-3)
    assert found < 0.05


def test_the_cost_is_that_of_the_families_one_after_the_other():
    gaussian, student = Gaussian(2.0), StudentT(9, 2.0)
    plan = accounting.Poisson(0.01)

    def rdp_of(noise, releases):
        mechanism = dp.mechanisms.Encoded(noise=noise)
        event = mechanism.claim(num_parameters=50).proven
        return accounting.epsilon([(event, plan, releases)], delta=1e-5)

    parts = [
        (
            dp.mechanisms.Encoded(noise=noise).claim(num_parameters=50).proven,
            plan,
            count,
        )
        for noise, count in ((gaussian, 30), (student, 70))
    ]
    mixed = rdp_of({0: gaussian, 30: student}, 100)
    assert mixed == pytest.approx(accounting.epsilon(parts, delta=1e-5), rel=1e-9)
    assert rdp_of(student, 100) != pytest.approx(mixed, rel=1e-3)


def test_the_ledger_of_a_fit_knows_both_families(tmp_path):
    model, _ = fit(MIXED, steps=4)
    spent = model.optimizer.ledger.to_json()
    assert "Gaussian" in spent and "StudentT" in spent
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.mechanism.noise == get_any(MIXED)


def test_a_composed_mechanism_takes_several_noises():
    optimizer = dp.optimizers.make_private(
        keras.optimizers.SGD,
        bound=dp.bounding.L2Clip(1.0),
        noise={0: Gaussian(4.0), 10: Gaussian(1.0)},
        refine=dp.refining.KSDenoising(),
    )
    release = optimizer.mechanism.claim(num_parameters=10).proven
    assert release.at(9) == accounting.GaussianRelease(4.0)
    assert release.at(10) == accounting.GaussianRelease(1.0)
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)])
    model.compile(optimizer, "mse")
    model.fit(np.ones([8, 3]), np.ones([8, 2]), batch_size=4, verbose=0)


def test_a_family_without_a_known_epsilon_is_refused_wherever_it_stands():
    with pytest.raises(ValueError, match="No bound on epsilon is known"):
        dp.optimizers.make_private(
            keras.optimizers.SGD,
            bound=dp.bounding.L2Clip(1.0),
            noise={0: Gaussian(4.0), 10: StudentT()},
        )


def test_two_schedules_at_once_are_refused():
    with pytest.raises(ValueError, match="noise_schedule"):
        dp.optimizers.EncodedSGD(noise=MIXED, noise_schedule={0: 1.0, 5: 2.0})


def test_a_subclass_does_not_take_over_the_name_of_its_base():
    class Louder(dp.noise.TreeAggregation):
        pass

    assert type(get_any("tree")) is dp.noise.TreeAggregation
    assert type(get_any({"class_name": "Louder"})) is Louder
