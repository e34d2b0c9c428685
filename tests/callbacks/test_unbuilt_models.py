"""Models that learn their input shapes from the data, with an accountant."""

import keras
import pytest
import tensorflow as tf

import keras_dp_ext as dp

SIZE, BATCH = 97, 16


@pytest.fixture
def data(rng):
    x = rng.standard_normal([SIZE, 4]).astype("float32")
    return x, (x.sum(axis=1) > 0).astype("int32")


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden = keras.layers.Dense(8, activation="relu")
        self.head = keras.layers.Dense(2)

    def call(self, x):
        return self.head(self.hidden(x))


class BuiltBaseNewHead(Subclassed):
    def __init__(self):
        super().__init__()
        self.hidden = keras.Sequential([keras.Input([4]), keras.layers.Dense(8)])


class OwnStep(Subclassed):
    def train_step(self, batch):
        x, y, weight = keras.utils.unpack_x_y_sample_weight(batch)
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x, y, self(x), weight)
            loss = self.optimizer.scale_loss(loss)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply_gradients(
            zip(gradients, self.trainable_variables, strict=True)
        )
        return {"loss": loss}


class Pairs(keras.Model):
    def __init__(self):
        super().__init__()
        self.head = keras.layers.Dense(2)

    def call(self, inputs):
        return self.head(keras.ops.concatenate([inputs["a"], inputs["b"]], axis=-1))


def deferred():
    return keras.Sequential([keras.layers.Dense(8), keras.layers.Dense(2)])


def train(model, x, y=None, epochs=2, jit_compile=False, lot=None, **arguments):
    model.compile(
        dp.optimizers.DPSGD(
            learning_rate=0.1, noise_multiplier=2.0, expected_batch_size=lot
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=jit_compile,
    )
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-3, **arguments)
    batch_size = None if y is None else BATCH
    history = model.fit(
        x, y, batch_size, epochs=epochs, verbose=0, callbacks=[accountant]
    )
    return history.history["epsilon"]


@pytest.mark.parametrize(
    ("make", "jit_compile"),
    [(deferred, True), (Subclassed, False), (BuiltBaseNewHead, True), (OwnStep, False)],
)
def test_epsilon_is_that_of_the_same_model_built_before(data, make, jit_compile):
    lots = dp.data.poisson_batches(*data, batch_size=BATCH)
    built = make()
    built(data[0][:1])
    model = make()
    assert train(model, lots, jit_compile=jit_compile) == train(built, lots)
    assert len(model.optimizer._trainable_variables) == len(model.trainable_variables)


@pytest.mark.parametrize("make", [deferred, Subclassed])
def test_arrays_with_a_partial_last_batch(data, make):
    assert len(train(make(), *data)) == 2


def test_nested_inputs(data):
    x, y = data
    lots = dp.data.poisson_batches({"a": x[:, :1], "b": x[:, 1:]}, y, batch_size=BATCH)
    assert len(train(Pairs(), lots)) == 2


def test_a_python_data_set(data):
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return SIZE // BATCH

        def __getitem__(self, index):
            rows = slice(index * BATCH, (index + 1) * BATCH)
            return data[0][rows], data[1][rows]

    model = Subclassed()
    sampling = dp.accounting.Shuffled(SIZE // BATCH, BATCH / SIZE)
    arguments = {"num_examples": SIZE, "batch_size": BATCH, "sampling": sampling}
    assert train(model, Batches(), lot=BATCH, **arguments)
    assert int(model.optimizer.releases) == 2 * (SIZE // BATCH)


def test_a_target_that_allows_no_step_is_refused_before_the_first(data):
    lots = dp.data.poisson_batches(*data, batch_size=BATCH)
    model = Subclassed()
    with pytest.raises(ValueError, match="must allow at least 1 more"):
        train(model, lots, target_epsilon=1e-3)
    assert int(model.optimizer.releases) == 0


def test_the_target_is_never_exceeded(data):
    lots = dp.data.poisson_batches(*data, batch_size=BATCH)
    epsilons = train(deferred(), lots, epochs=50, target_epsilon=1.0)
    assert 0.8 < epsilons[-1] <= 1.0


def test_a_model_that_cannot_be_built_from_the_data_says_what_to_do(data):
    class NotCallable(keras.Model):
        def train_step(self, batch):
            return {}

    with pytest.raises(ValueError, match="Call the model once on a batch"):
        train(NotCallable(), dp.data.poisson_batches(*data, batch_size=BATCH))


def test_without_an_accountant_it_still_trains(data):
    model = Subclassed()
    model.compile(
        dp.optimizers.DPSGD(), keras.losses.SparseCategoricalCrossentropy(True)
    )
    model.fit(*data, batch_size=BATCH, verbose=0)
    assert int(model.optimizer.releases) == -(-SIZE // BATCH)
