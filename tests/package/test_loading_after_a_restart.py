"""A saved model loads in a new process after `import keras_dp_ext` alone."""

import subprocess
import sys
import textwrap

import keras
import pytest

import keras_dp_ext as dp


def python(code):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    for name, optimizer in {
        "sgd": dp.optimizers.DPSGD(noise_multiplier=1.5),
        "encoded": dp.optimizers.EncodedAdam(noise=dp.noise.StudentT(df=9, scale=1.0)),
        "tf_privacy": dp.tf_privacy.DPKerasSGDOptimizer(1.0, 1.5),
        "lion": dp.optimizers.make_private(keras.optimizers.Lion)(noise_multiplier=1.5),
    }.items():
        model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
        model.compile(optimizer, loss="mse")
        model.save(folder / f"{name}.keras")
    return folder


@pytest.mark.parametrize(
    "imports",
    [
        "import keras, keras_dp_ext as dp",
        # Whoever only looks for Keras must not use up the hook.
        "import keras_dp_ext as dp, importlib.util as util; util.find_spec('keras')\n"
        "from tensorflow import keras",
    ],
)
def test_loading_needs_the_import_and_nothing_else(saved, imports):
    code = f"""
import sys
{imports}
assert "keras_dp_ext.optimizers" not in sys.modules
for name in ("sgd", "encoded", "tf_privacy", "lion"):
    model = keras.models.load_model({str(saved)!r} + "/" + name + ".keras")
    assert isinstance(model.optimizer, dp.optimizers.PrivateOptimizer), name
    assert not any("_KerasFinder" in repr(f) for f in sys.meta_path)
print(type(model.optimizer).__name__)
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "DPLion"


def test_the_import_brings_in_neither_keras_nor_tensorflow():
    done = python("""
        import sys, time
        start = time.process_time()
        import keras_dp_ext
        assert not {"keras", "tensorflow", "numpy", "scipy"} & set(sys.modules)
        print(time.process_time() - start)
    """)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.3


def test_every_class_that_can_be_saved_has_a_stand_in():
    # In a process of its own: other tests register classes of theirs.
    done = python("""
        import importlib, pkgutil
        import keras
        import keras_dp_ext as dp
        from keras_dp_ext import _registration

        for module in pkgutil.walk_packages(dp.__path__, "keras_dp_ext."):
            if not module.name.startswith("keras_dp_ext.cli"):
                importlib.import_module(module.name)
        ours = {
            name
            for name, value in keras.saving.get_custom_objects().items()
            if name.startswith("keras_dp_ext>")
            and not issubclass(value, _registration.StandIn)
        }
        missing = ours - _registration.names()
        assert ours and not missing, f"Add to `_registration._CLASSES`: {missing}"
    """)
    assert done.returncode == 0, done.stderr
