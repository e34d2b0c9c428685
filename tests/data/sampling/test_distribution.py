"""Under tf.distribute the replicas share each lot."""

import subprocess
import sys

SCRIPT = """
import numpy as np
import tensorflow as tf
from keras_dp_ext.data import poisson_batches

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(
    cpu, [tf.config.LogicalDeviceConfiguration()] * 2
)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
x = np.arange(1, 401, dtype=np.int32)

def read(lots):
    rows = []
    for x, _, weight in lots:
        x, weight = (strategy.experimental_local_results(v) for v in (x, weight))
        assert len({len(part) for part in x}) == 1 and len(x) == 2
        rows.append(np.concatenate([np.where(w > 0, v, 0) for v, w in zip(x, weight)]))
    return np.stack(rows)

one = np.stack([v for v, _, _ in poisson_batches(x, batch_size=40, seed=0)])
two = read(
    strategy.experimental_distribute_dataset(poisson_batches(x, batch_size=40, seed=0))
)
np.testing.assert_array_equal(one, two)
print("shared")
"""


def test_two_replicas_hold_the_halves_of_one_lot():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip().endswith("shared"), done.stderr[-2000:]
