"""A process for `test_randomness.py` that forks; prints what came out as JSON."""

import json
import os
import pathlib
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import keras
import numpy as np
from reliability_models import dense_model

import keras_dp_ext as dp
from keras_dp_ext.optimizers.training_session import begin_session


def in_child(function) -> str:
    """What `function` returns in a forked child; nothing if that takes a minute."""
    read, write = os.pipe()
    signal.alarm(60)  # A fork that never returns would leave nobody to tell.
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        os.write(write, function().encode())
        os._exit(0)
    os.close(write)
    signal.alarm(0)
    with open(read) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


def keys(noise: str) -> tuple[list, list, list]:
    """Keys of a parent around forks, of its children, and of those that train."""
    optimizer = dp.optimizers.DPSGD(secure_noise=noise == "secure")
    optimizer.build([keras.Variable(np.zeros(3))])
    source = optimizer._noise_source

    def key():
        return source._key.numpy().tolist()

    def of_a_training():
        begin_session(optimizer, None)
        return key()

    parent, children, training = [key()], [], []
    for _ in range(2):
        children.append(json.loads(in_child(lambda: json.dumps(key()))))
        parent.append(key())
        training.append(json.loads(in_child(lambda: json.dumps(of_a_training()))))
        parent.append(key())
    return parent, children, training


def while_training() -> list[str]:
    """What 100 children say that are forked while another thread trains."""
    model = dense_model()
    model.compile(dp.optimizers.DPSGD(), loss="mse", jit_compile=False)
    x, y = np.zeros((512, 4), "float32"), np.zeros((512, 1), "float32")
    stop = threading.Event()

    class UntilStopped(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = stop.is_set()

    trainer = threading.Thread(
        target=lambda: model.fit(
            x, y, batch_size=8, epochs=10**6, verbose=0, callbacks=[UntilStopped()]
        ),
        daemon=True,
    )
    trainer.start()
    while int(model.optimizer.iterations.numpy()) == 0:
        time.sleep(0.1)
    answers = [in_child(lambda: "alive") for _ in range(100)]
    stop.set()
    trainer.join()
    return answers


if __name__ == "__main__":
    what, *arguments = sys.argv[1:]
    made = keys(*arguments) if what == "keys" else while_training()
    print(json.dumps(made))
