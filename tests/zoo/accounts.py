"""What was spent on the same data: layers, earlier trainings, files, copies."""

import os
import tempfile

import keras
import numpy as np
import tensorflow as tf

import keras_dp_ext as dp
from tests.zoo import kit
from tests.zoo.kit import case


@case(
    "within",
    wrong="the components are a release that nobody has accounted",
    examples=["huge"],
)
def principal_components(x, y):
    pca = dp.data.PrivatePCA(num_components=2, noise_multiplier=0.5)
    pca.adapt(x)
    model = kit.functional(lambda i: keras.layers.Dense(1)(pca(i)))
    return kit.train(model, x, y)


@case(
    "warned",
    "adapted",
    wrong="mean and variance of the data are in the model, and nobody says so",
)
def adapted_normalization(x, y):
    norm = keras.layers.Normalization()
    norm.adapt(x)
    model = kit.functional(lambda i: keras.layers.Dense(1)(norm(i)))
    model.compile(kit.private(), "mse")
    model.fit(kit.lots(x, y), verbose=2, callbacks=[kit.accountant()])
    return model


@case(
    "found",
    "normalization",
    wrong="the audit does not see what `adapt` has written",
    examples=["huge"],
)
def adapted_normalization_as_the_audit_sees_it(x, y):
    norm = keras.layers.Normalization()
    norm.adapt(x)
    return kit.train(kit.functional(lambda i: keras.layers.Dense(1)(norm(i))), x, y)


@case("within", wrong="the second training starts a new account", examples=["huge"])
def two_fits_with_other_noise(x, y):
    model = kit.train(kit.dense(), x, y)
    other = kit.private(noise_multiplier=2.0)
    other.continue_from(model.optimizer)
    model.compile(other, "mse")
    return kit.fit(model, kit.lots(x, y))


@case(
    "warned",
    "another private optimizer",
    wrong="the first training is forgotten without a word",
)
def two_fits_with_a_new_optimizer(x, y):
    model = kit.train(kit.dense(), x, y)
    return kit.train(model, x, y, kit.private(noise_multiplier=2.0))


@case("within", wrong="the loaded model has spent nothing", examples=["huge"])
def resumed_from_a_saved_model(x, y):
    model = kit.train(kit.dense(), x, y)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.keras")
        model.save(path)
        model = keras.models.load_model(path)
    return kit.fit(model, kit.lots(x, y))


@case("within", wrong="the checkpoint brings old noise back", examples=["huge"])
def rolled_back_to_a_checkpoint(x, y):
    """Training goes on from the same weights twice: with fresh noise, or it leaks."""
    model = kit.train(kit.dense(), x, y)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        path = checkpoint.save(os.path.join(folder, "checkpoint"))
        kit.fit(model, kit.lots(x, y))
        checkpoint.restore(path)
    return kit.fit(model, kit.lots(x, y))


@case("within", wrong="a backup brings old noise back", examples=["huge"])
def resumed_from_a_backup(x, y):
    model = kit.dense()
    model.compile(kit.private(), "mse")
    with tempfile.TemporaryDirectory() as folder:
        for epochs in (1, 2):
            backup = keras.callbacks.BackupAndRestore(folder, delete_checkpoint=False)
            kit.fit(model, kit.lots(x, y), callbacks=[backup], epochs=epochs)
    return model


def _average(models):
    for weights in zip(*(model.weights for model in models), strict=True):
        weights[0].assign(sum(weight.numpy() for weight in weights) / len(models))
    return models[0]


@case("within", wrong="each ledger covers one model only", examples=["huge"])
def average_of_two_trainings_accounted_together(x, y):
    models = [kit.train(kit.dense(), x, y) for _ in range(2)]
    _average(models)
    return dp.accounting.Ledger.merge(
        (model.optimizer.ledger, int(model.optimizer.releases.numpy()))
        for model in models
    )


@case(
    "within",
    wrong="two trainings with the same settings count as one",
    examples=["huge"],
)
def average_of_two_trainings_by_loading(x, y):
    """The second model's file is loaded into the first: its spending comes along."""
    models = [kit.train(kit.dense(), x, y) for _ in range(2)]
    mean = _average(models)
    first, second = (model.optimizer for model in models)
    store = {}
    second.save_own_variables(store)
    first.load_own_variables(store)
    return mean


@case("found", "same noise", wrong="equal noise cancels out", examples=["huge"])
def the_same_noise_seed_twice(x, y):
    first, second = (
        kit.train(kit.dense(), x, y, kit.private(noise_seed=1)) for _ in range(2)
    )
    return [first, second]


@case(
    "warned",
    "noise_seed",
    wrong="noise that anybody can repeat, without a word",
)
def noise_with_a_seed(x, y):
    return kit.train(kit.dense(), x, y, kit.private(noise_seed=1))


@case("within", wrong="shuffled and sampled epochs are accounted alike")
def shuffled_then_sampled(x, y):
    model = kit.dense()
    model.compile(kit.private(), "mse")
    kit.fit(model, dp.data.shuffled_batches(x, y, batch_size=kit.LOT))
    return kit.fit(model, kit.lots(x, y))


@case("refused", "sampling", wrong="a rate that is not that of the data is believed")
def wrong_rate_declared(x, y):
    model = kit.dense()
    model.compile(kit.private(), "mse")
    accountant = kit.accountant(sampling=dp.accounting.Poisson(0.001))
    model.fit(kit.lots(x, y), verbose=0, callbacks=[accountant])
    return model


@case(
    "found",
    "participations",
    wrong="declared sampling cannot be checked from inside",
    adjacency="zero-out",
    examples=["huge"],
)
def false_rate_declared_for_a_generator(x, y):
    model = kit.dense()
    model.compile(kit.private(expected_batch_size=kit.LOT), "mse")

    def batches():
        while True:
            yield x[-kit.LOT :], y[-kit.LOT :]

    accountant = kit.accountant(sampling=dp.accounting.Poisson(0.01))
    model.fit(batches(), steps_per_epoch=8, verbose=0, callbacks=[accountant])
    return model


@case(
    "warned",
    "adapted",
    wrong="words of the data are in the model",
)
def adapted_vocabulary(x, y):
    texts = np.array([f"word{i} text" for i in range(len(x))])
    vectorize = keras.layers.TextVectorization(output_sequence_length=2)
    vectorize.adapt(texts)
    model = keras.Sequential(
        [
            keras.Input([], dtype="string"),
            vectorize,
            keras.layers.Embedding(100, 2),
            keras.layers.Flatten(),
            keras.layers.Dense(1),
        ]
    )
    model.compile(kit.private(), "mse")
    model.fit(kit.lots(texts, y), verbose=2, callbacks=[kit.accountant()])
    return model
