"""Several releases on one lot compose first, and are amplified once."""

import dp_accounting
import keras
import numpy as np
import pytest
import tensorflow as tf
from dp_accounting.rdp import rdp_privacy_accountant

import keras_dp_ext as dp

SIGMA = 2.0
DELTA = 1e-3
EXAMPLES = 100


def data():
    rng = np.random.default_rng(0)
    return (
        rng.normal(size=[EXAMPLES, 4]).astype(np.float32),
        rng.normal(size=[EXAMPLES, 1]).astype(np.float32),
    )


def lots(**arguments):
    return dp.data.poisson_batches(*data(), batch_size=10, **arguments)


def true_epsilon(multipliers, num_lots: int) -> float:
    """Of Gaussian releases on the same Poisson lot, by dp_accounting."""
    lot = dp_accounting.PoissonSampledDpEvent(
        10 / EXAMPLES,
        dp_accounting.ComposedDpEvent(
            [dp_accounting.GaussianDpEvent(m) for m in multipliers]
        ),
    )
    accountant = rdp_privacy_accountant.RdpAccountant()
    return accountant.compose(lot, num_lots).get_epsilon(DELTA)


class Critic(keras.Sequential):
    """Updates several times on every batch."""

    updates = 5

    def update(self, x, y, optimizer=None, variables=None):
        optimizer = optimizer or self.optimizer
        variables = variables or self.trainable_weights
        losses = keras.ops.mean(keras.ops.square(y - self(x)), axis=-1)
        optimizer.minimize(losses, variables)

    def train_step(self, data):
        x, y, _ = data
        for _ in range(self.updates):
            self.update(x, y)
        return {"done": 1.0}


class TwoHeads(Critic):
    """A second private optimizer that Keras knows nothing of."""

    def train_step(self, data):
        x, y, _ = data
        first, second = self.layers
        self.update(x, y, self.optimizer, first.trainable_weights)
        self.update(x, y, self.other, second.trainable_weights)
        return {"done": 1.0}


def compiled(model_class, optimizer=None, **arguments):
    model = model_class(
        [keras.Input([4]), keras.layers.Dense(3), keras.layers.Dense(1)]
    )
    model.compile(
        optimizer or dp.optimizers.DPSGD(noise_multiplier=SIGMA),
        loss="mse",
        **arguments,
    )
    return model


def fit(model, batches=None, epochs=2, **arguments) -> dp.callbacks.PrivacyAccountant:
    accountant = dp.callbacks.PrivacyAccountant(delta=DELTA, **arguments)
    model.fit(batches or lots(), epochs=epochs, verbose=0, callbacks=[accountant])
    return accountant


@pytest.mark.parametrize(
    "arguments", [{}, {"jit_compile": True}, {"steps_per_execution": 3}]
)
def test_five_updates_on_one_lot_are_amplified_once(arguments):
    model = compiled(Critic, **arguments)
    accountant = fit(model)
    assert accountant.releases == 5 * 20
    np.testing.assert_allclose(
        accountant.epsilon, true_epsilon([SIGMA] * 5, 20), rtol=0.01
    )
    assert accountant.epsilon > 1.5 * true_epsilon([SIGMA], 100)


def test_a_second_training_and_a_reload_keep_the_account(tmp_path):
    model = compiled(Critic)
    fit(model)
    again = fit(model)
    np.testing.assert_allclose(again.epsilon, true_epsilon([SIGMA] * 5, 40), rtol=0.01)
    model.save_weights(tmp_path / "w.weights.h5")
    loaded = compiled(Critic)
    fit(loaded, epochs=1)
    loaded.load_weights(tmp_path / "w.weights.h5")
    assert fit(loaded, epochs=1).epsilon > again.epsilon


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_second_private_optimizer_is_in_the_ledger(jit_compile):
    model = compiled(TwoHeads, jit_compile=jit_compile)
    model.other = dp.optimizers.DPAdam(noise_multiplier=0.7)
    accountant = fit(model)
    np.testing.assert_allclose(
        accountant.epsilon, true_epsilon([SIGMA, 0.7], 20), rtol=0.01
    )
    # Both ledgers tell the same.
    count = int(model.other.releases.numpy())
    other = model.other.ledger.epsilon(count, DELTA)
    np.testing.assert_allclose(other, accountant.epsilon, rtol=1e-6)


def test_a_private_optimizer_beside_keras_own_is_found():
    """As keras.io's GANs: `compile(d_optimizer=...)`, and no `optimizer` at all."""

    class Discriminator(Critic):
        def compile(self, d_optimizer):
            super().compile()
            self.d_optimizer = d_optimizer

        def train_step(self, data):
            self.update(data[0], data[1], self.d_optimizer)
            return {"done": 1.0}

    model = Discriminator([keras.Input([4]), keras.layers.Dense(1)])
    model.compile(dp.optimizers.DPSGD(noise_multiplier=SIGMA))
    accountant = fit(model)
    np.testing.assert_allclose(accountant.epsilon, true_epsilon([SIGMA], 20), rtol=0.01)


def test_the_target_holds_although_the_step_is_only_known_when_traced():
    model = compiled(Critic)
    accountant = fit(model, epochs=50, target_epsilon=2.5)
    assert accountant.epsilon <= 2.5
    assert accountant.epsilon > 2.3
    beyond = compiled(Critic)
    before = beyond.get_weights()
    with pytest.raises(ValueError, match="must allow at least 2 more"):
        fit(beyond, target_epsilon=true_epsilon([SIGMA], 2))
    assert int(beyond.optimizer.releases.numpy()) == 0
    for old, new in zip(before, beyond.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


def test_noise_that_is_not_gaussian_is_not_amplified_on_a_shared_lot():
    noise = dp.noise.Laplace(scale=3.0)
    one, two = [], []
    for updates, figures in ((1, one), (2, two)):
        model = compiled(Critic, dp.optimizers.EncodedSGD(noise=noise))
        model.updates = updates
        figures.append(fit(model, epochs=1).epsilon)
    event = model.optimizer._own_claim().proven
    ledger = dp.accounting.Ledger()
    ledger.add(dp.accounting.Claim(event), dp.accounting.FullBatch(), 20)
    assert two[0] >= 0.999 * ledger.epsilon(0, DELTA)
    assert two[0] > one[0]


class Twice(Critic):
    """One trace, two runs."""

    @tf.function
    def inner(self, x, y):
        self.update(x, y)

    def train_step(self, data):
        x, y, _ = data
        self.inner(x, y)
        self.inner(x, y)
        return {"done": 1.0}


@pytest.mark.parametrize("steps", [1, 10])
def test_an_inner_function_that_runs_twice_is_noticed(steps):
    model = compiled(Twice)
    with pytest.raises(ValueError, match="called several times on one batch"):
        fit(model, lots(steps_per_epoch=steps), epochs=1)
    # What has happened is accounted for, without amplification.
    count = int(model.optimizer.releases.numpy())
    full = dp.accounting.Ledger()
    full.add(
        dp.accounting.Claim(dp.accounting.GaussianRelease(SIGMA)),
        dp.accounting.FullBatch(),
        count,
    )
    assert model.optimizer.ledger.epsilon(count, DELTA) >= full.epsilon(0, DELTA)


def test_an_inner_function_that_runs_once_is_fine():
    class Once(Twice):
        def train_step(self, data):
            self.inner(data[0], data[1])
            return {"done": 1.0}

    accountant = fit(compiled(Once))
    np.testing.assert_allclose(accountant.epsilon, true_epsilon([SIGMA], 20), rtol=0.01)


def test_a_loop_of_tensorflow_around_the_update_is_refused():
    class Looped(Critic):
        def train_step(self, data):
            x, y, _ = data

            def body(i):
                self.update(x, y)
                return i + 1

            tf.while_loop(lambda i: i < 5, body, [0])
            return {"done": 1.0}

    with pytest.raises(ValueError, match="inside of a TensorFlow loop"):
        fit(compiled(Looped))


def test_two_updates_of_which_one_may_be_skipped_are_refused():
    class Sometimes(Critic):
        def train_step(self, data):
            x, y, _ = data
            self.update(x, y)

            def again():
                self.update(x, y)
                return 0

            tf.cond(self.optimizer.iterations.value % 5 == 0, again, lambda: 0)
            return {"done": 1.0}

    with pytest.raises(ValueError, match=r"inside of a `tf\.cond`"):
        fit(compiled(Sometimes))


def test_lots_over_several_batches_cannot_be_shared():
    optimizer = dp.optimizers.DPSGD(
        noise_multiplier=SIGMA, gradient_accumulation_steps=2
    )
    with pytest.raises(ValueError, match="gradient_accumulation_steps"):
        fit(compiled(Critic, optimizer), lots(accumulation_steps=2))


def test_one_update_for_each_batch_costs_what_it_did():
    accountant = fit(compiled(keras.Sequential))
    np.testing.assert_allclose(accountant.epsilon, true_epsilon([SIGMA], 20), rtol=0.01)


def with_a_tape(model, x, y, optimizer):
    with tf.GradientTape(persistent=True) as tape:
        losses = keras.ops.mean(keras.ops.square(y - model(x)), axis=-1)
    optimizer.minimize(losses, model.trainable_weights, tape=tape)


def with_a_function(model, x, y, optimizer):
    def losses():
        return keras.ops.mean(keras.ops.square(y - model(x)), axis=-1)

    optimizer.minimize(losses, model.trainable_weights)


class Eager(keras.Sequential):
    """A step whose updates run one after the other, before the next is known."""

    def train_step(self, data):
        x, y, _ = data
        for optimizer in self.optimizers:
            self.update(self, x, y, optimizer)
        return {"done": 1.0}


@pytest.mark.parametrize("update", [with_a_tape, with_a_function])
def test_updates_of_an_eager_step_are_one_for_each_lot(update):
    first, second = (dp.optimizers.DPSGD(noise_multiplier=SIGMA) for _ in range(2))
    model = compiled(Eager, first, run_eagerly=True)
    model.update, model.optimizers = update, [first]
    accountant = fit(model, epochs=1)
    np.testing.assert_allclose(accountant.epsilon, true_epsilon([SIGMA], 10), rtol=0.01)
    for number, optimizers in enumerate([[first, first], [first, second]]):
        model.optimizers = optimizers
        with pytest.raises(ValueError, match="one private update on each batch"):
            fit(model)
        # The first of them was released, and accounted for.
        assert int(first.releases.numpy()) == 11 + number
        assert int(second.releases.numpy()) == 0


def test_a_function_that_an_eager_step_calls_twice_is_noticed():
    class Twice(Critic):
        def train_step(self, data):
            x, y, _ = data
            if not hasattr(self, "inner"):
                self.inner = tf.function(self.update)
            for _ in range(2):
                self.inner(x, y)
            return {"done": 1.0}

    with pytest.raises(ValueError, match="called several times on one batch"):
        fit(compiled(Twice, run_eagerly=True))
