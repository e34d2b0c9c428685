"""Ten thousand steps in flat memory; ten million parameters in twelve gigabytes."""

import pathlib
import resource
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import keras
import numpy as np
import pytest
from reliability_models import data, dense_model

import keras_dp_ext as dp


def resident_megabytes() -> float:
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def growth(steps: int, warm_up: int) -> float:
    """By how many megabytes a training grows after its first steps."""
    x, y = data(64)
    model = dense_model()
    model.compile(dp.optimizers.DPAdam(expected_batch_size=8), loss="mse")
    lots = dp.data.poisson_batches(x, y, batch_size=8, steps_per_epoch=warm_up)
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-3)
    model.fit(lots, epochs=1, verbose=0, callbacks=[accountant])
    before = resident_megabytes()
    model.fit(lots, epochs=steps // warm_up, verbose=0, callbacks=[accountant])
    assert int(model.optimizer.releases.numpy()) == warm_up * (1 + steps // warm_up)
    return resident_megabytes() - before


@pytest.mark.slow
def test_ten_thousand_steps_run_in_flat_memory():
    # One leaked example gradient of this model per step would be 12 MB.
    assert growth(steps=10_000, warm_up=500) < 12


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["DPSGD", "TanhSGD", "EncodedSGD"])
def test_ten_million_parameters_train_in_twelve_gigabytes(mechanism):
    # In a process of its own, whose peak is its own.
    done = subprocess.run(
        [sys.executable, __file__, mechanism], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) < 12.0


def train_large(mechanism: str) -> float:
    """Peak memory in gigabytes of a step with 10 million parameters."""
    model = keras.Sequential(
        [
            keras.Input([1024]),
            keras.layers.Dense(4096, activation="relu"),
            keras.layers.Dense(1400, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    assert model.count_params() > 9_900_000
    model.compile(
        getattr(dp.optimizers, mechanism)(learning_rate=0.01),
        loss="sparse_categorical_crossentropy",
    )
    rng = np.random.default_rng(0)
    x = rng.normal(size=(128, 1024)).astype("float32")
    model.fit(x, rng.integers(0, 10, 128), batch_size=64, epochs=1, verbose=0)
    assert int(model.optimizer.releases.numpy()) == 2
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


if __name__ == "__main__":
    print(train_large(sys.argv[1]))
