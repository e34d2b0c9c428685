"""Class weights: said to the pipeline, since Keras refuses them for its lots."""

import keras
import numpy as np
import pytest

import keras_dp_ext as dp

X, Y = np.ones([40, 2], "float32"), np.arange(40) % 4 // 3
WEIGHTS = {0: 0.5, 1: 3.0}


def test_fit_says_where_the_argument_belongs():
    model = keras.Sequential([keras.Input([2]), keras.layers.Dense(2)])
    model.compile(dp.optimizers.DPSGD(), "sparse_categorical_crossentropy")
    with pytest.raises(ValueError, match=r"poisson_batches\(x, y, class_weight=...\)"):
        model.fit(
            dp.data.poisson_batches(X, Y, batch_size=8), class_weight=WEIGHTS, verbose=0
        )


@pytest.mark.parametrize("sampler", [dp.data.poisson_batches, dp.data.shuffled_batches])
def test_every_example_has_the_weight_of_its_class(sampler):
    lots = sampler(X, Y[:, None], batch_size=8, class_weight=WEIGHTS)
    for x, y, weight in lots:
        real = x.numpy()[:, 0] == 1
        assert set(weight.numpy()[~real]) <= {0.0}
        expected = np.where(y.numpy()[real, 0] == 1, 3.0, 0.5)
        np.testing.assert_array_equal(weight.numpy()[real], expected)


def test_both_kinds_of_weights_are_multiplied():
    lots = dp.data.shuffled_batches(
        X, Y, batch_size=8, sample_weight=np.full([40], 2.0), class_weight=WEIGHTS
    )
    total = sum(float(np.sum(weight)) for _, _, weight in lots)
    assert total == 2.0 * (30 * 0.5 + 10 * 3.0)


def test_other_functions_of_map_still_work():
    lots = dp.data.poisson_batches(X, Y, batch_size=8)
    assert dp.data.sampling_of(lots.map(lambda x, y, w: (2 * x, y, w))) is not None


@pytest.mark.parametrize("y", [None, {"a": Y, "b": Y}, np.eye(4)[np.arange(40) % 4]])
def test_targets_without_classes_are_refused(y):
    with pytest.raises(ValueError, match="one integer label for each example"):
        dp.data.poisson_batches(X, y, batch_size=8, class_weight=WEIGHTS)
