"""A training for `test_resume.py` to kill: resumes from its backup, writes a log.

Imports once and then forks a process for every attempt, until one is done.
"""

import json
import os
import pathlib
import signal
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import keras
import numpy as np
from reliability_models import dense_model

import keras_dp_ext as dp

BATCHES, LOT = 20, 2


class Log(keras.callbacks.Callback):
    """Appends what happened to a file, line by line."""

    def __init__(self, path: pathlib.Path):
        super().__init__()
        self._path = path
        self._restored = False

    def write(self, event: str) -> None:
        line = {event: int(self.model.optimizer.releases.numpy()), "pid": os.getpid()}
        with open(self._path, "a") as file:
            file.write(json.dumps(line) + "\n")

    def on_train_batch_begin(self, batch, logs=None):
        if not self._restored:
            self.write("restored")
            self._restored = True

    def on_train_batch_end(self, batch, logs=None):
        self.write("step")
        time.sleep(0.02)


class LoggedBackup(dp.callbacks.AtomicBackup):
    """Says when a backup is complete."""

    log: Log

    def _save_model(self):
        super()._save_model()
        self.log.write("saved")


def main(folder: pathlib.Path, epochs: int) -> None:
    x = np.random.default_rng(0).normal(size=(10, 4)).astype("float32")
    batches = dp.data.poisson_batches(
        x,
        x[:, :1],
        batch_size=1,
        accumulation_steps=LOT,
        steps_per_epoch=BATCHES // LOT,
    )
    model = dense_model()
    model.compile(
        dp.optimizers.DPAdam(noise_multiplier=1.0, gradient_accumulation_steps=LOT),
        loss="mse",
        jit_compile=False,
    )
    log = Log(folder / "progress.jsonl")
    # Five batches: in the middle of epochs and of lots.
    backup = LoggedBackup(folder / "backup", save_freq=5, delete_checkpoint=False)
    backup.log = log
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-5)
    model.fit(batches, epochs=epochs, verbose=0, callbacks=[accountant, backup, log])
    result = {
        "releases": int(model.optimizer.releases.numpy()),
        "iterations": int(model.optimizer.iterations.numpy()),
        "epsilon": accountant.epsilon,
    }
    temporary = folder / "result.tmp"
    temporary.write_text(json.dumps(result))
    temporary.rename(folder / "result.json")


def attempt(folder: pathlib.Path, epochs: int) -> int:
    """Trains in a child, and returns its status."""
    child = os.fork()
    if child == 0:
        try:
            main(folder, epochs)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    folder, epochs = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    while (code := attempt(folder, epochs)) == -signal.SIGKILL:
        pass
    sys.exit(code)
