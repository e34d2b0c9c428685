"""Bad input gets an error that says what was received; nothing trains by accident."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp

L = keras.layers
X = np.random.default_rng(0).normal(size=(12, 4)).astype("float32")
Y = np.random.default_rng(1).normal(size=(12, 1)).astype("float32")


def model():
    return keras.Sequential([keras.Input([4]), L.Dense(1)])


def fit(optimizer, loss="mse", built=None, **compile_arguments):
    built = built or model()
    before = built.get_weights()
    built.compile(optimizer, loss=loss, **compile_arguments)
    try:
        built.fit(X, Y, batch_size=6, verbose=0)
    finally:
        for old, new in zip(before, built.get_weights(), strict=True):
            np.testing.assert_array_equal(old, new)


def test_a_scalar_loss_that_hides_the_examples():
    def root_mean_square(y, p):
        return tf.sqrt(tf.reduce_mean(tf.square(y - p)))

    with pytest.raises(ValueError, match=r"hides its examples.*Sqrt.*reduction=None"):
        fit(dp.optimizers.DPSGD(), loss=root_mean_square)


def fit_on_lots(loss):
    built = keras.Sequential([keras.Input([4]), L.Dense(4, "sigmoid")])
    built.compile(dp.optimizers.DPSGD(), loss)
    built.fit(dp.data.poisson_batches(X, np.abs(X), batch_size=6), verbose=0)


@pytest.mark.parametrize(
    "loss",
    [
        lambda y, p: tf.reduce_mean(tf.square(y - p)),
        lambda y, p: keras.ops.mean(keras.losses.mean_squared_error(y, p)),
    ],
)
def test_a_loss_that_averages_the_batch_by_itself(loss):
    """Keras multiplies its one number by the weight of each row of a lot."""
    with pytest.raises(ValueError, match=r"one number for the whole batch.*axis=-1"):
        fit_on_lots(loss)


@pytest.mark.parametrize("loss", ["dice", "tversky", keras.losses.Dice()])
def test_dice_of_the_batch_is_told_the_axis(loss):
    with pytest.raises(ValueError, match=r"Dice.*`axis=\(1, 2, 3\)`"):
        fit_on_lots(loss)


def test_dice_of_each_example_trains():
    fit_on_lots(keras.losses.Dice(axis=(1,)))


def test_microbatches_that_do_not_divide_the_batch():
    with pytest.raises(ValueError, match=r"num_microbatches.*4 for 6 examples"):
        fit(dp.optimizers.DPSGD(num_microbatches=4))


@pytest.mark.parametrize(
    "arguments",
    [
        {"l2_norm_clip": -1.0},
        {"l2_norm_clip": 0.0},
        {"l2_norm_clip": float("nan")},
        {"noise_multiplier": -0.1},
        {"noise_multiplier": float("inf")},
        {"num_microbatches": 0},
        {"num_microbatches": 2.5},
        {"gradient_accumulation_steps": 0},
        {"expected_batch_size": -3},
        {"loss_scale_factor": 2.0},
    ],
    ids=str,
)
def test_bad_arguments_are_named(arguments):
    (name,) = arguments
    with pytest.raises(ValueError, match=f"`{name}`.*Received"):
        dp.optimizers.DPSGD(**arguments)


def test_a_model_without_trainable_weights():
    frozen = model()
    frozen.trainable = False
    with pytest.raises(ValueError, match="no trainable weights"):
        fit(dp.optimizers.DPSGD(), built=frozen)


def test_run_eagerly():
    with pytest.raises(ValueError, match=r"run_eagerly=True.*minimize"):
        fit(dp.optimizers.DPSGD(), run_eagerly=True)


def test_gradients_of_a_whole_batch_are_refused():
    net, optimizer = model(), dp.optimizers.DPSGD()
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(net(X) - Y))
    gradients = tape.gradient(loss, net.trainable_variables)
    pairs = list(zip(gradients, net.trainable_variables, strict=True))
    with pytest.raises(ValueError, match="loss of each example"):
        optimizer.apply_gradients(pairs)
    with pytest.raises(ValueError, match="loss of each example"):
        optimizer.apply(gradients, net.trainable_variables)


def test_minimize_refuses_a_scalar_loss():
    net, optimizer = model(), dp.optimizers.DPSGD()

    @tf.function
    def step():
        loss = tf.reduce_mean(tf.square(net(X) - Y))
        optimizer.minimize(loss, net.trainable_variables)

    with pytest.raises(ValueError, match="one loss for each example"):
        step()


def test_make_private_refuses_what_is_no_plain_optimizer():
    with pytest.raises(ValueError, match="subclass"):
        dp.optimizers.make_private("sgd")
    with pytest.raises(ValueError, match="plain optimizer"):
        dp.optimizers.make_private(dp.optimizers.DPSGD)


def test_a_changing_batch_size_in_a_custom_loop_must_be_announced():
    net, optimizer = model(), dp.optimizers.DPSGD()

    @tf.function
    def step(x, y):
        losses = keras.losses.mean_squared_error(y, net(x))
        optimizer.minimize(losses, net.trainable_variables)

    step(tf.constant(X[:6]), tf.constant(Y[:6]))
    with pytest.raises(ValueError, match="expected_batch_size"):
        step(tf.constant(X[:5]), tf.constant(Y[:5]))


def test_eager_losses_warn_that_nothing_is_verified_and_refuse_what_is_not_finite():
    # A tape differentiates every row through the whole batch: 0 * NaN of one
    # example would make the gradients of all others NaN, and count as zero.
    net, optimizer = model(), dp.optimizers.DPSGD()
    poisoned = np.concatenate([np.full_like(X[:1], np.nan), X[1:]])
    with tf.GradientTape() as tape:
        losses = keras.losses.mean_squared_error(Y, net(poisoned))
    with (
        pytest.warns(UserWarning, match="cannot be verified"),
        pytest.raises(ValueError, match=r"not finite.*tf\.function"),
    ):
        optimizer.minimize(losses, net.trainable_variables, tape=tape)
    assert int(optimizer.releases.numpy()) == 0
    with pytest.raises(ValueError, match="tape"):
        optimizer.minimize(losses, net.trainable_variables)


def test_two_losses_of_which_one_would_be_forgotten():
    class Two(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = L.Dense(1)

        def call(self, x):
            return self.dense(x)

        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.optimizer.scale_loss(tf.reduce_mean(tf.square(self(x) - y)))
                loss += self.optimizer.scale_loss(tf.reduce_mean(tf.square(self(x))))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(
                zip(gradients, self.trainable_variables, strict=True)
            )
            return {"loss": loss}

    net = Two()
    net(X)
    with pytest.raises(ValueError, match="called twice"):
        fit(dp.optimizers.DPSGD(), built=net)


@pytest.mark.parametrize(
    "name, value",
    [
        ("num_microbatches", None),
        ("expected_batch_size", 100),
        ("noise_seed", 1),
        ("secure_noise", True),
        ("chunk_bytes", 1000),
        ("physical_batch_size", 5),
        ("memory_limit", "1GB"),
        ("mechanism", dp.mechanisms.DPSGD(noise_multiplier=10.0)),
    ],
)
def test_what_the_claim_is_made_of_does_not_change_once_built(name, value):
    # Training would go on with the traced values, and epsilon with the new ones.
    net = model()
    optimizer = dp.optimizers.DPSGD(noise_multiplier=0.0, num_microbatches=3)
    optimizer.num_microbatches = 2  # Before it is built it may.
    net.compile(optimizer, loss="mse")
    net.fit(X, Y, batch_size=6, verbose=0)
    claim = optimizer.privacy_claim()
    with pytest.raises(ValueError, match=rf"`{name}` must not change.*`continue_from`"):
        setattr(optimizer, name, value)
    assert optimizer.privacy_claim() == claim


@pytest.mark.parametrize(
    "name, value", [("physical_batch_size", 5), ("memory_limit", "1GB")]
)
def test_parts_of_batches_are_asked_for_in_the_constructor(name, value):
    """Later, nobody would check the value, or tell Keras."""
    optimizer = dp.optimizers.DPSGD()
    with pytest.raises(ValueError, match=f"`{name}` is an argument of the constructor"):
        setattr(optimizer, name, value)
    assert getattr(optimizer, name) is None


@pytest.mark.parametrize("name", ["DPSGD", "TanhSGD", "DirectionalSGD", "EncodedSGD"])
def test_no_argument_of_a_mechanism_changes_once_built(name):
    optimizer = getattr(dp.optimizers, name)()
    optimizer.build(model().trainable_variables)
    for argument in optimizer.mechanism.get_config():
        with pytest.raises(ValueError, match=f"`{argument}` must not change"):
            setattr(optimizer.mechanism, argument, 10.0)


def test_a_new_optimizer_takes_over_what_the_former_has_spent(recwarn):
    net = model()
    former = dp.optimizers.DPSGD(noise_multiplier=2.0)
    net.compile(former, loss="mse")
    former.build(net.trainable_variables)
    former.declare_sampling(dp.accounting.Poisson(0.1))
    net.fit(X, Y, batch_size=6, verbose=0)
    optimizer = dp.optimizers.DPSGD(noise_multiplier=1.0)
    optimizer.continue_from(former)
    net.compile(optimizer, loss="mse")
    optimizer.build(net.trainable_variables)
    optimizer.declare_sampling(dp.accounting.Poisson(0.1))
    net.fit(X, Y, batch_size=6, verbose=0)
    assert not [w for w in recwarn if "another private optimizer" in str(w.message)]
    assert [
        (claim.proven.noise_multiplier, count)
        for claim, _, count in optimizer.ledger.entries(int(optimizer.releases.numpy()))
    ] == [(2.0, 2), (1.0, 2)]
    with pytest.raises(ValueError, match="before this optimizer has trained"):
        optimizer.continue_from(former)


def test_former_names_still_work_and_name_the_new_ones():
    former, optimizer = dp.optimizers.DPSGD(), dp.optimizers.DPSGD()
    former.build(model().trainable_variables)
    with pytest.warns(DeprecationWarning, match="declare_sampling"):
        former.open_segment(dp.accounting.Poisson(0.1))
    with pytest.warns(DeprecationWarning, match="continue_from"):
        optimizer.take_over(former)
    assert former.ledger.segments[-1].sampling == dp.accounting.Poisson(0.1)
    assert optimizer.ledger.segments


def relative_error(y, p):
    return tf.reduce_sum(tf.square(y - p)) / tf.reduce_sum(tf.square(p))


@pytest.mark.parametrize(
    "loss",
    [keras.losses.Dice(), keras.losses.Tversky(), relative_error],
    ids=["Dice", "Tversky", "relative error"],
)
def test_losses_that_are_divided_by_what_is_trained(loss):
    with pytest.raises(ValueError, match=r"divided by a number that depends on the w"):
        fit(dp.optimizers.DPSGD(), loss=loss)


def test_a_dice_loss_of_each_example_is_its_own_divisor():
    net = model()
    net.compile(dp.optimizers.DPSGD(), loss=keras.losses.Dice(axis=(1,)))
    net.fit(X, Y, batch_size=6, verbose=0)
    assert int(net.optimizer.releases.numpy()) == 2


class WithTerm(keras.Model):
    """A dense model with a further term of the loss, `term(model, per_example)`."""

    def __init__(self, term):
        super().__init__()
        self.dense = L.Dense(1)
        self.anchor = self.add_weight(shape=[4, 1], trainable=False)
        self.term = term
        self(X)

    def call(self, x):
        return self.dense(x)

    def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
        return self.term(self, tf.reduce_mean(tf.square(y - y_pred), axis=-1))


LARGE = np.random.default_rng(3).normal(size=(200, 4)).astype("float32")


@pytest.mark.parametrize("rows", [X, LARGE], ids=["a constant", "a capture"])
def test_a_term_on_arrays_that_the_model_closes_over_is_not_a_free_penalty(rows):
    # It looks like one, as it does not depend on the batch; it may hold the whole
    # training set.
    rows = tf.constant(rows)

    def term(net, losses):
        return tf.reduce_mean(losses) + tf.reduce_mean(tf.square(net(rows)))

    with pytest.raises(ValueError, match="array that the model closes over"):
        fit(dp.optimizers.DPSGD(), built=WithTerm(term))


def test_tokens_that_the_model_closes_over_are_arrays_too():
    tokens = tf.constant(np.arange(30) % 4)

    def term(net, losses):
        rows = tf.gather(tf.convert_to_tensor(net.dense.kernel), tokens)
        return tf.reduce_mean(losses) + tf.reduce_mean(tf.square(rows))

    with pytest.raises(ValueError, match="array that the model closes over"):
        fit(dp.optimizers.DPSGD(), built=WithTerm(term))


def test_penalties_on_weights_alone_stay_free():
    def term(net, losses):
        distance = tf.transpose(net.dense.kernel - net.anchor)
        return tf.reduce_mean(losses) + 0.1 * tf.reduce_sum(tf.square(distance))

    for net in (
        WithTerm(term),
        keras.Sequential(
            [
                keras.Input([4]),
                L.Dense(3, kernel_regularizer=keras.regularizers.L1L2(0.1, 0.1)),
                L.Dense(
                    3, kernel_regularizer=keras.regularizers.OrthogonalRegularizer()
                ),
                L.Dense(1),
            ]
        ),
    ):
        net.compile(dp.optimizers.DPSGD(), loss="mse")
        net.fit(X, Y, batch_size=6, verbose=0)
        assert int(net.optimizer.releases.numpy()) == 2


def test_a_penalty_is_not_divided_by_what_the_data_hold():
    def term(net, losses):
        penalty = tf.reduce_sum(tf.square(net.dense.kernel))
        return (tf.reduce_sum(losses) + penalty) / tf.reduce_sum(tf.abs(net.batch))

    class Weighted(WithTerm):
        def compute_loss(self, x, y, y_pred, sample_weight=None, training=True):
            self.batch = x
            return super().compute_loss(x, y, y_pred)

    with pytest.raises(ValueError, match="penalty on the weights is divided"):
        fit(dp.optimizers.DPSGD(), built=Weighted(term))


def test_a_function_of_losses_is_verified_in_eager_mode_too():
    optimizer = dp.optimizers.DPSGD()
    net = keras.Sequential([keras.Input([4]), L.Dense(3), L.BatchNormalization()])
    with pytest.raises(ValueError, match=r"mixes the examples|from the data"):
        optimizer.minimize(
            lambda: keras.losses.mean_squared_error(Y, net(X, training=True)),
            net.trainable_variables,
        )
