"""A training step of TensorFlow Privacy, timed on demand for `step_time.py`.

Reads numbers of steps from the standard input, one a line, and answers each with
the seconds of every step. Runs with TF_USE_LEGACY_KERAS=1 only.
"""

from __future__ import annotations

import sys

from benchmarks.workloads import LAYERS, WORKLOADS, answer_on_demand, repeated

# Without this the package imports estimators, which TensorFlow has not any more.
sys.skip_tf_privacy_import = True


def make_step(name: str, workload_name: str):
    import tensorflow as tf
    import tf_keras
    from tensorflow_privacy.privacy.keras_models import dp_keras_model
    from tensorflow_privacy.privacy.optimizers import dp_optimizer_keras

    workload = WORKLOADS[workload_name]
    x, y = workload.batch()
    if name == "tfp-sequential":
        model = dp_keras_model.DPSequential(
            l2_norm_clip=1.0,
            noise_multiplier=1.1,
            layers=LAYERS[workload_name](tf_keras),
        )
        optimizer = tf_keras.optimizers.SGD(0.01)
    else:
        model = workload.build(tf_keras)
        optimizer = dp_optimizer_keras.DPKerasSGDOptimizer(
            l2_norm_clip=1.0,
            noise_multiplier=1.1,
            num_microbatches=workload.batch_size,
            learning_rate=0.01,
        )
    model.compile(
        optimizer=optimizer,
        loss=tf_keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="none"
        ),
    )
    iterator = iter(repeated((x, y)))
    train = model.make_train_function()

    def step():
        tf.nest.map_structure(lambda value: value.numpy(), train(iterator))

    return step


if __name__ == "__main__":
    answer_on_demand(make_step(*sys.argv[1:3]))
