"""One of two workers of `test_workers.py`: draws lots, tries attacks, trains with `fit`."""

import contextlib
import json
import pathlib
import sys

import numpy as np
import tensorflow as tf

# Before anything else starts TensorFlow: the strategy opens the worker's port.
STRATEGY = tf.distribute.MultiWorkerMirroredStrategy()

import keras  # noqa: E402
from reliability_models import data, dense_model  # noqa: E402
from test_workers import LOTS, ROWS, fit_lots  # noqa: E402

import keras_dp_ext as dp  # noqa: E402
from keras_dp_ext.data.sampling import workers  # noqa: E402

INDEX = STRATEGY.cluster_resolver.task_id


def rows_of_epochs(lots, epochs=2) -> list[list[list[int]]]:
    """By epoch and step: the examples that this worker holds."""
    found = []
    for _ in range(epochs):
        found.append([])
        for x, _, weight in STRATEGY.experimental_distribute_dataset(lots):
            x, weight = (
                STRATEGY.experimental_local_results(value)[0].numpy()
                for value in (x, weight)
            )
            found[-1].append([int(row) for row in x[weight > 0]])
    return found


def refused(attack) -> str:
    try:
        attack()
    except (ValueError, tf.errors.OpError) as error:
        return str(error)
    return "not refused"


def other_order():
    dp.data.poisson_batches(ROWS[:: 1 - 2 * INDEX], batch_size=16)


def other_seed():
    dp.data.poisson_batches(ROWS, batch_size=16, seed=INDEX)


def other_rate():
    rows_of_epochs(dp.data.poisson_batches(ROWS, batch_size=16 + INDEX, seed=1))


def one_looks_before():
    """The first worker takes a look at the lots, the other one does not."""
    lots = dp.data.poisson_batches(ROWS, batch_size=16)
    workers.PATIENCE_SECONDS = 5.0
    try:
        if INDEX == 0:
            next(iter(lots))
        rows_of_epochs(lots)
    finally:
        workers.PATIENCE_SECONDS = 600.0


def compiled(**arguments):
    with STRATEGY.scope():
        model = dense_model()
        model.compile(
            dp.optimizers.DPSGD(learning_rate=0.1, noise_seed=5, **arguments),
            "mse",
            weighted_metrics=["mae"],
            jit_compile=False,
        )
    return model


def fit_on(*arguments, **further):
    model = compiled()
    try:
        model.fit(*arguments, verbose=0, **further)
    finally:
        assert int(model.optimizer.releases.numpy()) == 0


def without_sharding():
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = (
        tf.data.experimental.AutoShardPolicy.OFF
    )
    fit_on(fit_lots().with_options(options))


def stated():
    """A sampling that the user states does not make rows disjoint."""
    sampling = dp.accounting.FullBatch()
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-5, sampling=sampling)
    fit_on(*data(64), batch_size=16, callbacks=[accountant])


def other_weights():
    """A backup that one worker alone has loaded."""
    model = compiled()
    model.set_weights([(1 + INDEX) * value for value in model.get_weights()])
    model.fit(fit_lots(), verbose=0)


def other_ledger():
    """A worker that knows of less than was released would state a lower epsilon."""
    model = compiled()
    if INDEX == 0:
        claim = dp.accounting.Claim(dp.accounting.GaussianRelease(1.0))
        model.optimizer.ledger.add(claim, dp.accounting.Poisson(0.1), 5)
    model.fit(fit_lots(), verbose=0)


def compiled_by_xla():
    model = compiled()
    model.jit_compile = True
    model.fit(fit_lots(), verbose=0)


ATTACKS = {
    "other order": other_order,
    "other seed": other_seed,
    "other rate": other_rate,
    "arrays": lambda: fit_on(*data(64), batch_size=16),
    "shuffled": lambda: fit_on(
        tf.data.Dataset.from_tensor_slices(data(64)).shuffle(64).batch(16)
    ),
    "stated": stated,
    "without sharding": without_sharding,
    "train_on_batch": lambda: compiled().train_on_batch(*data(16)),
    "other weights": other_weights,
    "other ledger": other_ledger,
    "compiled by XLA": compiled_by_xla,
    "one looks before": one_looks_before,
}


def train(**arguments) -> dict:
    model = compiled(**arguments)
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-5)
    steps = arguments.get("gradient_accumulation_steps", 1)
    lots = fit_lots(accumulation_steps=steps)
    history = model.fit(lots, epochs=2, verbose=0, callbacks=[accountant])
    return {
        "weights": [float(w) for v in model.get_weights() for w in np.ravel(v)],
        "releases": int(model.optimizer.releases.numpy()),
        "epsilon": history.history["epsilon"],
        "loss": history.history["loss"],
    }


class Cut(keras.callbacks.Callback):
    """Ends the process, as far as the training can tell, when an epoch begins."""

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 2:
            raise InterruptedError


def resumed(folder: str) -> dict:
    """A training that is cut off and goes on, on the backup of the first worker."""
    released = []
    for further in ([Cut()], []):
        model = compiled()
        backup = dp.callbacks.AtomicBackup(f"{folder}/of worker {INDEX}")
        note = keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs, model=model: released.append(
                [epoch, int(model.optimizer.releases.numpy())]
            )
        )
        accountant = dp.callbacks.PrivacyAccountant(delta=1e-5)
        callbacks = [backup, note, accountant, *further]
        with contextlib.suppress(InterruptedError):
            model.fit(fit_lots(), epochs=3, verbose=0, callbacks=callbacks)
    return {
        "weights": [float(w) for v in model.get_weights() for w in np.ravel(v)],
        "epochs and releases": released,
        "epsilon": model.optimizer.ledger.epsilon(delta=1e-5),
        "left": sorted(p.name for p in pathlib.Path(folder).glob("of*/*")),
    }


def plain_keras() -> list[float]:
    with STRATEGY.scope():
        model = dense_model()
        model.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=False)
    return model.fit(*data(64), batch_size=16, epochs=2, verbose=0).history["loss"]


def main(path: str) -> None:
    found = {
        "rows": {name: rows_of_epochs(make()) for name, make in LOTS.items()},
        "trained": train(),
        "trained in lots": train(gradient_accumulation_steps=2),
        "resumed": resumed(f"{path} backups"),
        "plain": plain_keras(),
        "errors": {name: refused(attack) for name, attack in ATTACKS.items()},
    }
    with open(path, "w") as file:
        json.dump(found, file)


if __name__ == "__main__":
    main(sys.argv[1])
