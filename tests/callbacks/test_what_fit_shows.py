"""What is known of how batches are drawn, and what is refused or said where it is not."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext import accounting
from keras_dp_ext.callbacks import PrivacyAccountant
from tests.numpy_batches import numpy_batches

SIGMA, DELTA = 2.0, 1e-4
SIZE, BATCH = 120, 12
X = np.random.default_rng(0).standard_normal([SIZE, 3]).astype("float32")
Y = X[:, :1]
POISSON = accounting.Poisson(BATCH / SIZE)
FULL = accounting.FullBatch()


def compiled(**arguments):
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    optimizer = dp.optimizers.DPSGD(
        noise_multiplier=SIGMA, expected_batch_size=BATCH, **arguments
    )
    model.compile(optimizer, loss="mse")
    return model


def poisson():
    return dp.data.poisson_batches(X, Y, batch_size=BATCH)


def examples():
    return tf.data.Dataset.from_tensor_slices((X, Y))


def spent(*parts):
    event = accounting.GaussianRelease(SIGMA)
    return accounting.epsilon([(event, s, n) for s, n in parts], DELTA)


def accounted(data, model=None, sampling=None, **arguments):
    accountant = PrivacyAccountant(delta=DELTA, sampling=sampling)
    model = model or compiled()
    model.fit(data, verbose=0, callbacks=[accountant], **arguments)
    return accountant


# Pipelines that nobody has labelled --------------------------------------------------


class Choice(keras.utils.PyDataset):
    """Rows by chance: some three times, some never."""

    def __len__(self):
        return SIZE // BATCH

    def __getitem__(self, index):
        rows = np.random.default_rng(index).integers(SIZE, size=BATCH)
        return X[rows], Y[rows]


def chosen():
    while True:
        rows = np.random.randint(SIZE, size=BATCH)
        yield X[rows], Y[rows]


SIGNATURE = tf.TensorSpec([BATCH, 3]), tf.TensorSpec([BATCH, 1])
UNKNOWN = {
    "PyDataset": Choice,
    "generator": chosen,
    "from_generator": lambda: tf.data.Dataset.from_generator(
        chosen, output_signature=SIGNATURE
    ),
    "sample_from_datasets": lambda: tf.data.Dataset.sample_from_datasets(
        [examples().repeat(), examples().repeat()]
    ).batch(BATCH),
    "rejection_resample": lambda: (
        examples()
        .rejection_resample(lambda x, y: tf.cast(x[0] > 0, tf.int32), [0.5, 0.5])
        .map(lambda kind, example: example)
        .batch(BATCH)
    ),
    "repeat shuffle": lambda: examples().repeat().shuffle(SIZE).batch(BATCH),
    "shuffle repeat": lambda: examples().shuffle(SIZE).repeat().batch(BATCH),
    "batch repeat shuffle": lambda: examples().batch(BATCH).repeat().shuffle(9),
    "interleave": lambda: (
        examples()
        .interleave(lambda x, y: tf.data.Dataset.from_tensors((x, y)).repeat(3))
        .batch(BATCH)
    ),
    "flat_map": lambda: (
        examples()
        .flat_map(lambda x, y: tf.data.Dataset.from_tensors((x, y)).repeat(3))
        .batch(BATCH)
    ),
    "concatenate": lambda: examples().concatenate(examples()).batch(BATCH),
    "zip of shuffled": lambda: tf.data.Dataset.zip(
        (
            tf.data.Dataset.from_tensor_slices(X).shuffle(SIZE),
            tf.data.Dataset.from_tensor_slices(Y),
        )
    ).batch(BATCH),
    "filter": lambda: examples().filter(lambda x, y: x[0] > 0).batch(BATCH),
    "indices": lambda: (
        tf.data.Dataset.from_tensor_slices(np.arange(SIZE) // 2)
        .map(lambda i: (tf.gather(X, i), tf.gather(Y, i)))
        .batch(BATCH)
    ),
    "chance": lambda: (
        tf.data.Dataset.from_tensor_slices(np.zeros([9 * SIZE]))
        .map(lambda i: _one_by_chance())
        .batch(BATCH)
    ),
    "Python": lambda: (
        examples()
        .map(lambda x, y: (tf.numpy_function(lambda v: X[0], [x], tf.float32), y))
        .map(lambda x, y: (tf.ensure_shape(x, [3]), y))
        .batch(BATCH)
    ),
    "steps": lambda: tf.data.Dataset.range(10).map(
        lambda i: (tf.gather(X, [0] * BATCH), tf.gather(Y, [0] * BATCH))
    ),
}


def _one_by_chance():
    row = tf.random.uniform([], 0, SIZE, tf.int32)
    return tf.constant(X)[row], tf.constant(Y)[row]


@pytest.mark.parametrize("kind", UNKNOWN)
def test_batches_that_may_hold_anything_need_a_word(kind):
    model = compiled()
    with pytest.raises(ValueError, match="not known how batches are drawn") as error:
        accounted(UNKNOWN[kind](), model, steps_per_epoch=10)
    assert "sampling=" in str(error.value)
    assert int(model.optimizer.releases.numpy()) == 0


def test_what_is_stated_is_believed_and_the_statement_says_so():
    accountant = accounted(Choice(), sampling=POISSON)
    assert accountant.epsilon == pytest.approx(spent((POISSON, 10)), rel=1e-6)
    text = " ".join(accountant.statement().split())
    assert "Assumed, not verified: batches were drawn as was stated (Poisson" in text


PLAIN = {
    "shuffled": lambda: (examples().shuffle(SIZE).batch(BATCH), 10),
    "in order": lambda: (examples().batch(BATCH), 10),
    "mapped": lambda: (
        examples()
        .map(lambda x, y: (2 * x, y))
        .cache()
        .shuffle(9)
        .batch(BATCH, num_parallel_calls=2)
        .map(lambda x, y: (x / 2, y))
        .prefetch(1),
        10,
    ),
    "remainder": lambda: (examples().shuffle(SIZE).batch(11), 11),
    "dropped": lambda: (examples().batch(11, drop_remainder=True), 10),
    "repeated": lambda: (examples().shuffle(SIZE).batch(BATCH).repeat(), 10),
    "batches shuffled": lambda: (examples().batch(BATCH).shuffle(10).repeat(), 10),
    "a part": lambda: (examples().take(60).batch(BATCH), 5),
    "some batches": lambda: (examples().batch(BATCH).skip(3).take(4), 4),
    "columns": lambda: (
        tf.data.Dataset.zip(
            (
                tf.data.Dataset.from_tensor_slices(X),
                tf.data.Dataset.from_tensor_slices(Y),
            )
        ).batch(BATCH),
        10,
    ),
    "whole": lambda: (tf.data.Dataset.from_tensors((X, Y)), 1),
    # A pass and a half, then from the beginning: no pass is known to be whole.
    "cut": lambda: (examples().batch(BATCH).repeat(2).take(15), 1),
}


@pytest.mark.parametrize("kind", PLAIN)
def test_plain_pipelines_are_recognised(kind):
    from keras_dp_ext.data.sampling.plain import read_plain

    pipeline, length = PLAIN[kind]()
    plain = read_plain(pipeline)
    assert (plain.num_examples, plain.pass_length) == (SIZE, length)
    # In so many batches no row is seen twice, wherever the passes begin.
    rows, seen = [tuple(x) for x in X.tolist()], []
    for _ in range(3):
        batches = numpy_batches(pipeline.take(30))
        seen += [{rows.index(tuple(row)) for row in x.tolist()} for x, _ in batches]
    for start in range(0, len(seen) - length, length):
        window = seen[start : start + length]
        assert sum(map(len, window)) == len(set().union(*window))


def test_a_map_that_mixes_a_batch_is_refused_in_plain_pipelines():
    mixed = examples().batch(BATCH).map(lambda x, y: (x - tf.reduce_mean(x, 0), y))
    with pytest.raises(ValueError, match="depend on each other"):
        accounted(mixed)


def participations(fit_arguments, epochs, data=None):
    """The most releases that one example has really been in, and epsilon."""
    seen = []

    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x):
            return self.dense(x)

        def train_step(self, batch):
            x, y = batch
            tf.py_function(lambda y: seen.append(y.numpy()[:, 0]), [y], [])
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x, training=True))
                loss = self.optimizer.scale_loss(loss)
            weights = self.trainable_weights
            self.optimizer.apply_gradients(
                zip(tape.gradient(loss, weights), weights, strict=True)
            )
            return {"loss": loss}

    model = Model()
    model.compile(
        dp.optimizers.DPSGD(noise_multiplier=SIGMA, expected_batch_size=BATCH),
        loss="mse",
        jit_compile=False,
    )
    accountant = PrivacyAccountant(delta=DELTA)
    numbers = np.arange(SIZE, dtype="float32")[:, None]
    if data is None:
        arguments = {"x": X, "y": numbers, "batch_size": BATCH, **fit_arguments}
    else:
        arguments = {"x": data(numbers), **fit_arguments}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(epochs=epochs, verbose=0, callbacks=[accountant], **arguments)
    counts = np.bincount(np.concatenate(seen).astype(int), minlength=SIZE)
    return counts.max(), accountant


@pytest.mark.parametrize(
    "arguments, epochs, most",
    [
        ({"steps_per_epoch": 4}, 3, 1),  # 4, 4 and 2 batches of one pass.
        ({"steps_per_epoch": 4, "initial_epoch": 1}, 6, 2),
        ({"steps_per_epoch": 14}, 2, 2),  # Cut after ten each.
        ({"shuffle": False}, 2, 2),
        ({"shuffle": "batch"}, 2, 2),
    ],
)
def test_participations_are_those_of_keras_epochs(arguments, epochs, most):
    seen, accountant = participations(arguments, epochs)
    assert seen == most
    assert accountant.epsilon == pytest.approx(spent((FULL, most)), rel=1e-6)


def test_participations_of_a_repeated_pipeline():
    def data(numbers):
        pipeline = tf.data.Dataset.from_tensor_slices((X, numbers)).shuffle(SIZE)
        return pipeline.batch(BATCH).repeat()

    seen, accountant = participations({"steps_per_epoch": 7}, 3, data)
    assert seen == 3  # 21 releases touch three passes.
    assert accountant.epsilon == pytest.approx(spent((FULL, 3)), rel=1e-6)


def test_the_batch_size_of_arrays_may_follow_from_the_steps():
    accountant = PrivacyAccountant(delta=DELTA)
    compiled().fit(X, Y, steps_per_epoch=5, verbose=0, callbacks=[accountant])
    first, *_ = accountant.model.optimizer.ledger.segments
    assert first.sampling == accounting.Shuffled(5, 24 / SIZE)


@pytest.mark.parametrize("kind", ["tensor", "frame"])
def test_arrays_of_all_kinds_are_arrays(kind):
    if kind == "frame":
        pandas = pytest.importorskip("pandas")
        x, y = pandas.DataFrame(X), pandas.DataFrame(Y)
    else:
        x, y = tf.constant(X), tf.constant(Y)
    accountant = accounted(x, y=y, batch_size=BATCH)
    assert accountant.epsilon == pytest.approx(spent((FULL, 1)), rel=1e-6)


# Labels that are lost ----------------------------------------------------------------


@pytest.mark.parametrize(
    "lose, words",
    [
        (lambda lots: lots.cache().prefetch(1), "`cache` .* in front of the sampler"),
        (lambda lots: lots.unbatch().batch(BATCH), "`unbatch` .* what a lot is"),
        (lambda lots: lots.filter(lambda x, y, w: True), "`filter` .* in front of"),
        (lambda lots: lots.shuffle(9), "`shuffle` behind the sampler is not needed"),
        (lambda lots: lots.concatenate(lots), "`concatenate` behind the sampler"),
        (
            lambda lots: lots.map(
                lambda x, y, w: tuple(tf.repeat(v, 2, axis=0) for v in (x, y, w))
            ),
            "changes the number of rows",
        ),
    ],
)
def test_what_has_lost_the_label_is_named(lose, words):
    with pytest.raises(ValueError, match=words):
        accounted(lose(poisson()))


def test_text_vectorization_keeps_the_label():
    layer = keras.layers.TextVectorization(
        output_sequence_length=3, vocabulary=["a", "b"]
    )
    text = np.array(["a b", "b", ""] * 40)
    lots = dp.data.poisson_batches(text, Y, batch_size=BATCH)
    mapped = lots.map(lambda x, y, w: (layer(x), y, w)).prefetch(2)
    assert dp.data.sampling_of(mapped).sampling == lots.dp_sampling.sampling
    # As long as the longest text of a lot: one example changes the rows of others.
    ragged = keras.layers.TextVectorization(vocabulary=["a", "b"])
    with pytest.raises(ValueError, match="depend on each other"):
        accounted(lots.map(lambda x, y, w: (ragged(x), y, w)), compiled())


# Without an accountant ---------------------------------------------------------------


def test_a_forgotten_accountant_can_be_asked_afterwards(tmp_path):
    model = compiled()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(poisson(), epochs=2, verbose=0)
    expected = spent((POISSON, 20))
    assert accounting.epsilon_of(model, DELTA) == pytest.approx(expected, rel=1e-6)
    assert model.optimizer.ledger.epsilon(delta=DELTA) == pytest.approx(expected)
    # Another `fit` on other data, with the step that is traced already.
    model.fit(X, Y, batch_size=BATCH, verbose=0)
    expected = spent((POISSON, 20), (FULL, 1))
    assert accounting.epsilon_of(model, DELTA) == pytest.approx(expected, rel=1e-6)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert accounting.epsilon_of(loaded, DELTA) == pytest.approx(expected, rel=1e-6)
    # Also a loaded model looks at its data, rather than to go on as before.
    loaded.fit(X, Y, batch_size=BATCH, verbose=0)
    expected = spent((POISSON, 20), (FULL, 2))
    assert accounting.epsilon_of(loaded, DELTA) == pytest.approx(expected, rel=1e-6)


def test_what_cannot_be_seen_is_said_while_training_and_has_no_epsilon():
    model = compiled()
    with pytest.warns(UserWarning, match="cannot be accounted for") as caught:
        model.fit(Choice(), epochs=2, verbose=0)
    said = [w for w in caught if "cannot be accounted for" in str(w.message)]
    assert len(said) == 1
    with pytest.raises(ValueError, match="it was not recorded"):
        accounting.epsilon_of(model, DELTA)
    with pytest.raises(ValueError, match="it was not recorded"):
        accounted(poisson(), model)
    assert int(model.optimizer.releases.numpy()) == 20
    model.optimizer.ledger.declare(POISSON)
    expected = spent((POISSON, 20))
    assert accounting.epsilon_of(model, DELTA) == pytest.approx(expected, rel=1e-6)
    assert "stated" in model.optimizer.ledger.assumed[0]


def test_an_interrupted_fit_does_not_vouch_for_the_next():
    class Interrupt(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise KeyboardInterrupt

    model = compiled()
    with pytest.raises(KeyboardInterrupt):
        model.fit(poisson(), verbose=0, callbacks=[Interrupt()])
    model.fit(X, Y, batch_size=BATCH, verbose=0)
    expected = spent((POISSON, 1), (FULL, 1))
    assert accounting.epsilon_of(model, DELTA) == pytest.approx(expected, rel=1e-6)


def test_an_optimizer_without_privacy_has_no_epsilon():
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile("sgd", loss="mse")
    with pytest.raises(ValueError, match="no privacy at all"):
        accounting.epsilon_of(model, DELTA)


# Two trainings, and branches of one --------------------------------------------------


def test_the_average_of_two_models_costs_both_trainings(tmp_path):
    models = [compiled(), compiled()]
    for model in models:
        model.fit(poisson(), verbose=0)
    ledgers = [model.optimizer.ledger for model in models]
    together = accounting.Ledger.merge(ledgers).epsilon(delta=DELTA)
    assert together == pytest.approx(spent((POISSON, 20)), rel=1e-6)
    # A branch of the first: the past that they share counts once.
    models[0].save(tmp_path / "trunk.keras")
    branch = keras.models.load_model(tmp_path / "trunk.keras")
    for model in (models[0], branch):
        model.fit(poisson(), verbose=0)
    ledgers = [models[0].optimizer.ledger, branch.optimizer.ledger]
    together = accounting.Ledger.merge(ledgers).epsilon(delta=DELTA)
    assert together == pytest.approx(spent((POISSON, 30)), rel=1e-6)
    # Loading the weights of one into the other spends both, and only once.
    branch.save_weights(tmp_path / "branch.weights.h5")
    for _ in range(2):
        models[0].load_weights(tmp_path / "branch.weights.h5")
        spending = accounting.epsilon_of(models[0], DELTA)
        assert spending == pytest.approx(spent((POISSON, 30)), rel=1e-6)


def test_a_fit_inside_of_another_is_refused():
    # One counter for both: the outer's releases would be taken for the inner's.
    class Inner(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.fit(X, Y, batch_size=BATCH, verbose=0)

    model = compiled()
    with pytest.raises(ValueError, match="at the same time"):
        model.fit(poisson(), verbose=0, callbacks=[Inner()])
    assert int(model.optimizer.releases.numpy()) == 1
    # What ended with an error is over.
    model.fit(poisson(), verbose=0)
    expected = spent((POISSON, 11))
    assert accounting.epsilon_of(model, DELTA) == pytest.approx(expected, rel=1e-6)


def test_a_fit_after_a_loop_of_ones_own_is_looked_at():
    model = compiled()
    model.optimizer.build(model.trainable_variables)

    @tf.function
    def step(x, y):
        losses = keras.losses.mean_squared_error(y, model(x))
        model.optimizer.minimize(losses, model.trainable_variables)

    step(X[:BATCH], Y[:BATCH])
    with pytest.raises(ValueError, match="it was not recorded"):
        accounting.epsilon_of(model, DELTA)
    model.optimizer.ledger.declare(FULL)
    model.fit(poisson(), verbose=0)
    expected = spent((FULL, 1), (POISSON, 10))
    assert accounting.epsilon_of(model, DELTA) == pytest.approx(expected, rel=1e-6)
    step(X[:BATCH], Y[:BATCH])  # Traced already: nobody looks.
    expected = spent((FULL, 2), (POISSON, 10))
    assert accounting.epsilon_of(model, DELTA) == pytest.approx(expected, rel=1e-6)
