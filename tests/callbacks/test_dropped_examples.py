"""Who may see the data can learn how many examples were left out."""

import keras
import numpy as np
import pytest

import keras_dp_ext as dp


def fit(optimizer, x, epochs=2, **arguments):
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", **arguments)
    dropped = dp.callbacks.DroppedExamples()
    history = model.fit(
        x, np.ones([len(x), 1]), 8, epochs, verbose=0, callbacks=[dropped]
    )
    return model, dropped, history.history["dropped"]


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("name", ["DPSGD", "TanhSGD", "EncodedSGD", "DirectionalSGD"])
def test_every_epoch_tells_what_it_dropped(name, jit_compile):
    x = np.ones([16, 3], "float32")
    x[2, 1], x[9, 0], x[10] = np.nan, np.inf, -np.inf
    optimizer = getattr(dp.optimizers, name)()
    with pytest.warns(UserWarning, match="3 gradients of epoch 2 were not finite"):
        model, dropped, by_epoch = fit(optimizer, x, jit_compile=jit_compile)
    assert by_epoch == [3, 3]
    assert dropped.total == 6
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


def test_nothing_is_dropped_and_said_where_all_is_well(recwarn):
    _, dropped, by_epoch = fit(dp.optimizers.DPAdam(), np.ones([16, 3], "float32"))
    assert by_epoch == [0, 0]
    assert dropped.total == 0
    assert not [w for w in recwarn if "not finite" in str(w.message)]


def test_a_step_that_was_traced_without_it_counts_too():
    x = np.full([8, 3], np.nan, "float32")
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(dp.optimizers.DPSGD(), "mse")
    model.fit(x, np.ones([8, 1]), verbose=0)
    dropped = dp.callbacks.DroppedExamples()
    with pytest.warns(UserWarning, match="8 gradients"):
        model.fit(x, np.ones([8, 1]), verbose=0, callbacks=[dropped])
    assert dropped.total == 8


def test_replicas_are_counted_together(mirrored):
    x = np.ones([16, 3], "float32")
    x[1], x[14] = np.nan, np.nan
    with mirrored.scope(), pytest.warns(UserWarning, match="2 gradients"):
        _, dropped, _ = fit(dp.optimizers.DPSGD(), x, epochs=1, jit_compile=False)
    assert dropped.total == 2


def test_the_count_is_not_saved(tmp_path):
    x = np.ones([8, 3], "float32")
    model, *_ = fit(dp.optimizers.DPSGD(), x, epochs=1)
    model.save(tmp_path / "model.keras")
    names = [variable.path for variable in model.optimizer.variables]
    assert not [name for name in names if "dropped" in name]
    keras.models.load_model(tmp_path / "model.keras")


def test_other_optimizers_are_refused():
    with pytest.raises(ValueError, match="needs a private optimizer"):
        fit(keras.optimizers.SGD(), np.ones([8, 3], "float32"))
