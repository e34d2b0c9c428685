"""The paper's models can be trained privately: no layer mixes examples."""

import keras
import numpy as np
import pytest

import keras_dp_ext as dp
from benchmarks import models


def test_sizes_are_those_of_the_papers():
    assert models.lenet().count_params() == 61_706
    assert models.mnist_cnn().count_params() == 26_010
    # The original has 11,173,962 with as many normalisation weights.
    assert models.resnet18().count_params() == 11_173_962
    kernels = [
        layer.kernel_size
        for layer in models.alexnet().layers
        if isinstance(layer, keras.layers.Conv2D)
    ]
    assert kernels == [(3, 3)] * 5


@pytest.mark.parametrize(
    "name",
    [
        "lenet",
        pytest.param("alexnet", marks=pytest.mark.slow),
        pytest.param("resnet18", marks=pytest.mark.slow),
    ],
)
def test_a_directional_step_runs(name):
    small = {} if name == "lenet" else {"width": 4}
    model = getattr(models, name)(**small)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(dp.optimizers.DirectionalSGD(learning_rate=0.1), loss)
    x = np.random.default_rng(0).random((8, *model.input_shape[1:]), "float32")
    model.fit(x, np.arange(8) % 10, batch_size=4, verbose=0)
    assert int(model.optimizer.releases.numpy()) == 2
    assert all(np.all(np.isfinite(w)) for w in model.get_weights())
