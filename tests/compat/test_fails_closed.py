"""Where Keras or TensorFlow have changed, nothing trains: no check is skipped."""

import functools
import importlib
import inspect
import os
import pathlib
import re
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext._compat import (
    keras_internals,
    op_creation,
    tf_datasets,
    tf_internals,
    versions,
)
from keras_dp_ext._compat.versions import IncompatibleVersionError
from keras_dp_ext.data.layers.adapted import uncovered_by
from keras_dp_ext.data.sampling import table_lookups

ROOT = pathlib.Path(dp.__file__).parent
VERSIONS = r"TensorFlow \d.* with Keras \d.*docs/new_versions.md"


def model(optimizer=None):
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(optimizer or dp.optimizers.DPSGD(), "mse")
    return model


def fit(model):
    x = np.ones((8, 3), "float32")
    model.fit(x, x[:, :1], batch_size=4, verbose=0)


# Keras -------------------------------------------------------------------------


def with_other_source(monkeypatch, name, *changes):
    """Replaces a method of Keras' trainer by itself, with other words."""
    method = keras_internals._innermost(getattr(keras.Model, name))
    owner = next(c for c in keras.Model.__mro__ if name in vars(c))
    source = inspect.cleandoc("\n" + inspect.getsource(method))
    source = "\n".join(line for line in source.splitlines() if not line.startswith("@"))
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    space = {}
    # In Keras' own module, as the frame of the method tells where it is from.
    exec(source, method.__globals__, space)
    monkeypatch.setattr(owner, name, space[name])


def test_another_signature_of_train_step_is_an_error(monkeypatch):
    """What cuts batches into parts takes the place of Keras' own training step."""
    owner = next(c for c in keras.Model.__mro__ if "train_step" in vars(c))
    monkeypatch.setattr(owner, "train_step", lambda self, data, seed=None: {})
    with pytest.raises(
        IncompatibleVersionError, match=rf"`train_step` takes.*{VERSIONS}"
    ):
        dp.optimizers.DPSGD(physical_batch_size=2)
    dp.optimizers.DPSGD()  # Changes nothing in Keras, and needs nothing of it.


def test_a_renamed_iterator_of_fit_is_an_error(monkeypatch):
    """It tells one training from the next: lots would straddle two of them."""
    with_other_source(monkeypatch, "fit", ("epoch_iterator", "batches_of_epoch"))
    trained = model()
    with pytest.raises(IncompatibleVersionError, match=rf"epoch_iterator.*{VERSIONS}"):
        fit(trained)
    assert int(trained.optimizer.releases) == 0


def test_a_renamed_iterator_of_a_pass_is_an_error(monkeypatch):
    """It tells one pass from the next: what is left of one would join the other."""
    with_other_source(
        monkeypatch,
        "fit",
        (", iterator in epoch_iterator", ", batches in epoch_iterator"),
        ("self.train_function(iterator)", "self.train_function(batches)"),
    )
    trained = model()
    with pytest.raises(IncompatibleVersionError, match=rf"`iterator`.*{VERSIONS}"):
        fit(trained)
    assert int(trained.optimizer.releases) == 0


def test_a_fit_that_calls_another_function_is_an_error(monkeypatch):
    """The guard that takes the place of `train_function` would not be called."""
    with_other_source(
        monkeypatch,
        "fit",
        (
            "logs = self.train_function(",
            "logs = vars(self)['train_' + 'function'](",
        ),
    )
    code = keras_internals._innermost(keras.Model.fit).__code__
    assert "train_function" not in code.co_names
    trained = model()
    with pytest.raises(IncompatibleVersionError, match="calls no `train_function`"):
        fit(trained)
    assert int(trained.optimizer.releases) == 0


def test_a_fit_of_the_users_own_that_calls_keras_is_found():
    class Own(keras.Sequential):
        def fit(self, *args, **kwargs):
            return super().fit(*args, **kwargs)

    trained = Own([keras.Input([3]), keras.layers.Dense(1)])
    trained.compile(dp.optimizers.DPSGD(), "mse")
    fit(trained)
    assert int(trained.optimizer.releases) == 2


def test_an_optimizer_without_the_hooks_is_refused():
    class WithoutHooks:
        scale_loss = None

    with pytest.raises(IncompatibleVersionError, match="_all_reduce_sum_gradients"):
        keras_internals.check_optimizer_hooks(WithoutHooks)


@pytest.mark.parametrize(
    ("owner", "name", "use"),
    [
        (
            keras.callbacks.BackupAndRestore,
            "_save_model",
            lambda: dp.callbacks.AtomicBackup("backup"),
        ),
        (
            keras.layers.StringLookup,
            "_token_start_index",
            lambda: uncovered_by(keras.layers.StringLookup()),
        ),
        (
            keras.optimizers.Adam,
            "_get_variable_index",
            lambda: keras_internals.adam_moments(keras.optimizers.Adam(), None),
        ),
    ],
)
def test_a_private_name_of_keras_that_is_gone_is_an_error(
    owner, name, use, monkeypatch
):
    where = next(one for one in owner.__mro__ if name in vars(one))
    monkeypatch.delattr(where, name)
    with pytest.raises(IncompatibleVersionError, match=name):
        use()


# TensorFlow -----------------------------------------------------------------------


def test_ops_that_do_not_pass_by_the_guard_are_an_error(monkeypatch):
    """As if TensorFlow had another way to add ops to a graph."""
    from tensorflow.python.framework import op_def_library

    fit(model())  # The observer is there from now on.
    graph_class = tf_internals.function_graph_class()
    observed = graph_class._create_op_internal
    assert hasattr(observed, "_keras_dp_ext")
    apply_op = op_def_library._apply_op_helper

    def apply_past_the_observer(*args, **kwargs):
        graph_class._create_op_internal = observed.__wrapped__
        try:
            return apply_op(*args, **kwargs)
        finally:
            graph_class._create_op_internal = observed

    monkeypatch.setattr(op_def_library, "_apply_op_helper", apply_past_the_observer)
    trained = model()
    with pytest.raises(IncompatibleVersionError, match=f"without a call.*{VERSIONS}"):
        fit(trained)
    assert int(trained.optimizer.releases) == 0


def test_a_graph_with_a_way_of_its_own_is_an_error():
    op_creation.observe_new_ops(lambda op: None)
    graph = tf_internals.scratch_graph("other")
    unobserved = type(graph)._create_op_internal.__wrapped__
    graph._create_op_internal = lambda *a, **k: unobserved(graph, *a, **k)
    with pytest.raises(IncompatibleVersionError, match="_create_op_internal"):
        op_creation.require_observed(graph)


def op_with_its_own_gradient():
    with tf_internals.scratch_graph("silu").as_default():
        return tf.nn.silu(tf.constant(1.0)).op


@pytest.mark.parametrize(
    ("call", "owner", "attribute"),
    [
        (
            lambda: tf_internals.is_compiled(None),
            "tensorflow.python.ops.control_flow_util",
            "GraphOrParentsInXlaContext",
        ),
        (
            tf_internals.multiplies_by_onednn,
            "tensorflow.python.framework.test_util",
            "IsMklEnabled",
        ),
        (
            tf_internals.without_autograph,
            "tensorflow.python.autograph.core.ag_ctx",
            "ControlStatusCtx",
        ),
        (
            lambda: tf_internals.local_variable(tf.constant(1.0)),
            "tensorflow.python.ops.resource_variable_ops",
            "ResourceVariable",
        ),
        (
            lambda: tf_internals.is_control_flow_body(None),
            "tensorflow.python.ops.control_flow_v2_func_graphs",
            "ControlFlowFuncGraph",
        ),
        (
            functools.partial(tf_internals.custom_gradient, op_with_its_own_gradient()),
            "tensorflow.python.framework.ops",
            "gradient_registry",
        ),
    ],
)
def test_what_is_missing_is_named(monkeypatch, call, owner, attribute):
    monkeypatch.delattr(importlib.import_module(owner), attribute)
    with pytest.raises(IncompatibleVersionError, match=rf"{attribute}.*{VERSIONS}"):
        call()


def test_a_table_that_a_map_function_has_captured_is_seen_or_an_error(monkeypatch):
    """Without its captures, a function that looks examples up would pass for harmless."""
    table = tf.random.uniform([50, 3])

    @tf.function
    def look_up(index):
        return tf.gather(table, index)

    function = look_up.get_concrete_function(tf.TensorSpec([], tf.int64))
    assert "may hold examples" in table_lookups.looks_examples_up(function, 10)
    monkeypatch.delattr(tf_internals.function_graph_class(), "captures")
    with pytest.raises(IncompatibleVersionError, match=rf"captures.*{VERSIONS}"):
        table_lookups.looks_examples_up(function, 10)


def test_a_function_without_a_graph_is_an_error(monkeypatch):
    """What an inner function does with the data would not be looked at."""
    from tensorflow.python.eager.polymorphic_function import atomic_function

    inner = tf.function(lambda x: x + 1.0)
    outer = tf.function(lambda x: inner(x)).get_concrete_function(tf.constant(1.0))
    (function,) = tf_internals.functions_of_graph(outer.graph)
    assert tf_internals.graph_of_function(function) is not None
    monkeypatch.delattr(atomic_function.AtomicFunction, "graph")
    with pytest.raises(IncompatibleVersionError, match=rf"graph.*{VERSIONS}"):
        tf_internals.graph_of_function(function)


def test_a_missing_module_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow.python.framework.test_util", None)
    with pytest.raises(IncompatibleVersionError, match=rf"test_util.*{VERSIONS}"):
        tf_internals.multiplies_by_onednn()


def test_data_sets_are_read_as_expected():
    data = tf.data.Dataset.range(10)
    assert not tf_datasets.is_repeated(data.batch(2).map(lambda x: x))
    assert tf_datasets.is_repeated(data.repeat(2).batch(2))
    size, batched = tf_datasets.last_batching(data.batch(4).prefetch(1))
    assert size == 4
    assert int(batched.cardinality()) == 10
    assert tf_datasets.last_batching(data) is None
    assert len(tf_datasets.dataset_functions(data.map(lambda x: x + 1))) == 1


# Versions -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("distribution", "version"),
    [
        ("tensorflow", "2.17.1"),
        ("tensorflow", "2.99.0"),
        ("keras", "3.9.2"),
        ("keras", "4.0.0"),
        ("keras", "of unknown version"),
    ],
)
def test_versions_that_were_not_tested_are_refused(monkeypatch, distribution, version):
    installed = {name: first for name, (first, _) in versions.TESTED_VERSIONS.items()}
    installed[distribution] = version
    monkeypatch.setattr(versions, "version_of", installed.get)
    monkeypatch.delenv(versions.OVERRIDE, raising=False)
    with pytest.raises(IncompatibleVersionError, match=f"Received: {distribution}"):
        versions.check_versions()
    monkeypatch.setenv(versions.OVERRIDE, "1")
    with pytest.warns(UserWarning, match=f"Received: {distribution}"):
        versions.check_versions()


def test_setup_declares_the_versions_that_are_tested():
    setup = ROOT.parent / "setup.cfg"
    if not setup.exists():
        pytest.skip("installed without its sources")
    text = setup.read_text()
    for distribution, (first, end) in versions.TESTED_VERSIONS.items():
        assert re.search(rf"^ +{distribution}>={first},<{end}$", text, re.MULTILINE)


def test_the_readme_names_the_versions_that_are_tested():
    readme = ROOT.parent / "README.md"
    if not readme.exists():
        pytest.skip("installed without its sources")
    ranges = []
    for first, end in versions.TESTED_VERSIONS.values():
        major, minor = end.split(".")
        ranges.append(f"{first} to {major}.{int(minor) - 1}")
    stated = "TensorFlow {} and Keras {}".format(*ranges)
    assert f"tested with {stated};" in readme.read_text()


def test_versions_are_checked_where_tensorflow_is_needed_and_not_before():
    code = (
        "import importlib.metadata as m, sys; real = m.version\n"
        "m.version = lambda n: '2.99.0' if n.startswith('tensorflow') else real(n)\n"
        "import keras_dp_ext as dp; dp.accounting.Poisson(0.1)\n"
        "assert 'tensorflow' not in sys.modules\n"
        "try: dp.optimizers\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != versions.OVERRIDE}
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert ran.stdout.startswith("IncompatibleVersionError keras_dp_ext is tested with")


PRIVATE = re.compile(
    r"tensorflow\.python|keras\.src|tf\.__internal__|_create_op_internal|_getframe"
    r"|_gradient_function\b|f_locals|\._functions\(\)|\._inputs\(\)|\b_is_function\b"
    r"|_add_function_recursive|maybe_merge_call|\bag_ctx\b|IsMklEnabled"
    r"|control_flow_util|_loss_tracker|_compile_metrics|one_step_on_data|_handle_data|_flatten_layers|\"_numpy\"|\"_batch_size\"|\.captures\b|class_weights_map_fn"
)


def test_private_parts_are_used_in_one_place_only():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted(ROOT.rglob("*.py"))
        if path.parent.name != "_compat"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if PRIVATE.search(line)
    ]
    assert not found, "\n".join(found)
