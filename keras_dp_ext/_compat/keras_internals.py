"""Parts of Keras that are not public.

Each function says what it relies on, and since when; "3.3" stands for the oldest Keras
that was looked at. What is missing is an `IncompatibleVersionError`, never a default.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import keras
import tensorflow as tf

from keras_dp_ext._compat.versions import incompatible, require

# The training that is under way ---------------------------------------------------


@dataclasses.dataclass(frozen=True)
class RunningTraining:
    """A call of `fit` or `train_on_batch` that has not returned yet.

    Attributes:
        model: The model that is trained.
        arguments: What the method was called with, by name.
        epoch_iterator: Keras' iterator over all epochs of this `fit`; no other `fit`
            has the same. `None` in `train_on_batch`.
        step_data: The batch, as the training step that is being traced sees it.
        batches: Keras' iterator over the batches of the pass under way; `None` in
            `train_on_batch`, and in `fit` before its first step.
    """

    model: keras.Model
    arguments: dict[str, Any]
    epoch_iterator: Any
    step_data: Any
    batches: Any


def running_training(optimizer: Any = None) -> RunningTraining | None:
    """The innermost `fit` or `train_on_batch` under way, or `None`.

    Keras tells neither an optimizer nor a callback about the data. Both run inside of
    `fit`, whose frame holds them. Relies on the names `epoch_iterator` and `iterator` of
    local variables of `fit` (3.3), and on `one_step_on_data(data)` (3.3), without which
    `step_data` is `None`.

    Args:
        optimizer: Whose training is looked for in other threads, if there is none in
            this one: `tf.distribute` traces each replica in its own thread.
    """
    found = _training_around(sys._getframe(1))
    if found is None and optimizer is not None:
        for frame in sys._current_frames().values():
            candidate = _training_around(frame)
            if candidate and candidate.model.optimizer is optimizer:
                found = candidate
    return found


def is_running(epoch_iterator: Any) -> bool:
    """Whether the `fit` with this iterator has not returned yet, in any thread.

    Relies on the same local variable as `running_training`.
    """
    return any(
        outer.f_code.co_name == "fit"
        and _is_of_keras(outer)
        and outer.f_locals.get("epoch_iterator") is epoch_iterator
        for frame in sys._current_frames().values()
        for outer in _frames(frame)
    )


def _training_around(frame: FrameType | None) -> RunningTraining | None:
    step_data = None
    for outer in _frames(frame):
        name = outer.f_code.co_name
        if name == STEP_FUNCTION and step_data is None and _is_of_keras(outer):
            step_data = outer.f_locals.get("data")
        if name not in ("fit", "train_on_batch") or not _is_of_keras(outer):
            continue
        values = outer.f_locals
        if isinstance(values.get("self"), keras.Model):
            if name == "train_on_batch":
                return RunningTraining(values["self"], values, None, step_data, None)
            return RunningTraining(
                values["self"],
                values,
                _epoch_iterator(values),
                step_data,
                _batches(outer),
            )
    return None


def _epoch_iterator(values: dict[str, Any]) -> Any:
    if values.get("epoch_iterator") is None:
        # Without it, one training could not be told from the next.
        raise incompatible("`Model.fit` has no local variable `epoch_iterator`")
    return values["epoch_iterator"]


def _batches(frame: FrameType) -> Any:
    if "iterator" not in frame.f_code.co_varnames:
        # Without it, a pass that was cut short would count as one with the next.
        raise incompatible("`Model.fit` has no local variable `iterator`")
    return frame.f_locals.get("iterator")


def _is_of_keras(frame: FrameType) -> bool:
    """A `fit` of the user's own is a custom loop, or calls that of Keras."""
    return frame.f_globals.get("__name__", "").split(".")[0] == "keras"


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def array_batch_size(epoch_iterator: Any) -> int | None:
    """The size of the batches into which `fit` cuts arrays; `None` for other data.

    Relies on `EpochIterator.data_adapter` and the class `ArrayDataAdapter` (3.10). How
    other data are sampled is not assumed.
    """
    adapter = require(epoch_iterator, "data_adapter")
    if type(adapter).__name__ != "ArrayDataAdapter":
        return None
    return int(require(adapter, "batch_size"))


def batches_per_epoch(epoch_iterator: Any) -> int | None:
    """How many batches the data of a `fit` have, if Keras knows.

    Relies on `EpochIterator.num_batches` (3.10).
    """
    return require(epoch_iterator, "num_batches")


#: The name of the function with which `fit(class_weight=...)` maps a data set (3.10).
#: Without it, Keras' own error is shown in place of a better one.
CLASS_WEIGHT_FUNCTION = "class_weights_map_fn"


def dataset_of_fit(epoch_iterator: Any) -> Any:
    """The data set that `fit` reads from.

    Relies on `TFEpochIterator._distributed_dataset` (3.10).
    """
    return require(epoch_iterator, "_distributed_dataset")


# Callbacks ------------------------------------------------------------------------

# What `AtomicBackup` overrides, and what it reads there.
_BACKUP_HOOKS = ("_save_model",)
_BACKUP_ATTRIBUTES = (
    "_current_epoch",
    "_last_batch_seen",
    "_training_metadata_path",
    "_weights_path",
)


def check_backup(backup: keras.callbacks.BackupAndRestore) -> None:
    """Requires what a callback of our own changes in `BackupAndRestore` (3.10)."""
    for name in _BACKUP_HOOKS:
        require(keras.callbacks.BackupAndRestore, name)
    for name in _BACKUP_ATTRIBUTES:
        require(backup, name)


def calling_callback_list() -> keras.callbacks.CallbackList | None:
    """The list that calls a callback's `set_model`; `None` if somebody else does.

    For use in `set_model`. Relies on `CallbackList.set_model` calling the callbacks of
    its `callbacks` (3.3).
    """
    for frame in _frames(sys._getframe(1)):
        owner = frame.f_locals.get("self")
        if isinstance(owner, keras.callbacks.CallbackList):
            require(owner, "callbacks")
            return owner
    return None


def is_writing_backup() -> bool:
    """Whether `BackupAndRestore` is saving: to resume from, and deleted afterwards.

    Where it cannot be seen, the answer is no: less is written then.
    """
    return any(
        isinstance(frame.f_locals.get("self"), keras.callbacks.BackupAndRestore)
        for frame in _frames(sys._getframe(1))
    )


def show_as_it_is(name: str, callbacks: keras.callbacks.CallbackList | None) -> bool:
    """Lets the progress bar of a running `fit` show a value in place of its average.

    Keras 3.15 shows every value as it is. Keras 3.10 to 3.13 average, but for what is in
    `Progbar.stateful_metrics`. Relies there on `ProgbarLogger.progbar`, which is `None`
    until an epoch begins.

    Returns:
        Whether no progress bar averages the value; no where it cannot be seen.
    """
    if _no_bar_averages():
        return True
    if callbacks is None:
        return False
    for callback in callbacks.callbacks:
        if isinstance(callback, keras.callbacks.ProgbarLogger):
            bar = require(callback, "progbar")
            if bar is None:
                return False
            require(bar, "stateful_metrics").add(name)
    return True


@functools.cache
def _no_bar_averages() -> bool:
    parameters = inspect.signature(keras.utils.Progbar.__init__).parameters
    return "stateless_metrics" in parameters


# Models ---------------------------------------------------------------------------


def replace_train_function(
    model: keras.Model, wrapped: Callable[[Callable], Callable]
) -> Callable | None:
    """Puts another function in the place of the one that `fit` calls for each step.

    Relies on `Model.train_function`, and that `fit` and `train_on_batch` call it (3.3).

    Args:
        model: The model that is being fitted.
        wrapped: Makes the new function from the present one.

    Returns:
        The new function; `None` if the model has no such function yet.
    """
    for method in (keras.Model.fit, keras.Model.train_on_batch):
        code = _innermost(method).__code__
        if "train_function" not in code.co_names:
            raise incompatible(f"`Model.{code.co_name}` calls no `train_function`")
    function = require(model, "train_function")
    if function is not None:
        model.train_function = wrapped(function)
    return model.train_function


#: The name of Keras' function of one batch, and so of its graph (3.3). Without it, a
#: step is everything that is traced at once: more is refused then, never less.
STEP_FUNCTION = "one_step_on_data"


def loss_tracker(model: keras.Model) -> keras.metrics.Mean:
    """The metric of the logged loss.

    Relies on `Model._loss_tracker`, a `Mean` with `total` and `count` (3.3).
    """
    tracker = require(model, "_loss_tracker")
    for name in ("total", "count"):
        require(tracker, name)
    return tracker


def unweighted_metrics(model: keras.Model) -> list[Any]:
    """What was passed as `metrics` to `compile`.

    Relies on `Model._compile_metrics` and its `_user_metrics` (3.3).
    """
    compiled = require(model, "_compile_metrics")
    return [] if compiled is None else require(compiled, "_user_metrics") or []


def functional_class() -> type[keras.Model]:
    """The class of models that are made of inputs and outputs; it has no public name.

    Relies on the class of what `keras.Model(inputs, outputs)` returns (3.3).
    """
    from keras.src.models import functional

    return require(functional, "Functional")


def all_layers(model: keras.Model) -> list[keras.layers.Layer]:
    """A model and its layers, also those of models in the model.

    Relies on `Layer._flatten_layers` (3.3).
    """
    return list(require(model, "_flatten_layers")())


# Layers that are adapted ----------------------------------------------------------


def table_of(layer: keras.layers.Layer) -> keras.layers.Layer | None:
    """The lookup table in a `TextVectorization`; `None` for other layers.

    Relies on `TextVectorization._lookup_layer` (3.10).
    """
    if not isinstance(layer, keras.layers.TextVectorization):
        return None
    return require(layer, "_lookup_layer")


def has_learned_words(layer: Any) -> bool:
    """Whether a layer has a vocabulary that it did not get from its constructor.

    Relies on `IndexLookup._has_input_vocabulary` and `_token_start_index` (3.10).
    """
    table = table_of(layer) or layer
    if require(table, "_has_input_vocabulary"):
        return False
    without_words = require(table, "_token_start_index")()
    return layer.vocabulary_size() > without_words


def is_adapted(layer: Any) -> bool | None:
    """Whether a layer was adapted; `None` where it does not tell.

    Keras' `FeatureSpace` tells by `_is_adapted` (3.10). Of a layer that has neither name
    the caller assumes the worst.
    """
    known = getattr(layer, "is_adapted", getattr(layer, "_is_adapted", None))
    return known() if callable(known) else known


def components(variable: keras.Variable | tf.Variable) -> list[tf.Variable]:
    """The TensorFlow variables behind a variable: one for each local replica.

    Relies on `keras.Variable._value` (3.3): `value` is a tensor while a layer of mixed
    precision is called. And on `DistributedVariable.values` (TensorFlow 2.16).
    """
    value = variable
    if isinstance(variable, keras.Variable):
        value = require(variable, "_value")
    if isinstance(value, tf.distribute.DistributedValues):
        return list(require(value, "values"))
    return [value]


# Optimizers -----------------------------------------------------------------------

# What Keras' `apply` calls and `PrivateOptimizer` overrides, or the other way round.
_OPTIMIZER_HOOKS = (
    "_all_reduce_sum_gradients",
    "_apply_weight_decay",
    "_backend_update_step",
    "_distributed_tf_update_step",
    "_use_weight_decay",
    "iterations",
    "scale_loss",
)


def check_optimizer_hooks(base: type[keras.optimizers.Optimizer]) -> None:
    """Requires the methods by which a private optimizer takes part in Keras' update."""
    for name in _OPTIMIZER_HOOKS:
        require(base, name)


def update_counter(optimizer: keras.optimizers.Optimizer) -> keras.Variable:
    """The variable that counts updates.

    Relies on `Optimizer._iterations` (3.10): with accumulation, `iterations` is a
    fraction of it.
    """
    return require(optimizer, "_iterations")


def variables_of(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """The variables that an optimizer was built for.

    Relies on `Optimizer._trainable_variables` (3.10).
    """
    return list(require(optimizer, "_trainable_variables"))


def was_built_for(optimizer: keras.optimizers.Optimizer, variable: Any) -> bool:
    """Whether a variable is among those that an optimizer was built for.

    Relies on `Optimizer._var_key` and `_trainable_variables_indices` (3.10), which
    know a variable by any of its replicas.
    """
    key = require(optimizer, "_var_key")(variable)
    return key in require(optimizer, "_trainable_variables_indices")


def adam_moments(
    optimizer: keras.optimizers.Adam, variable: Any
) -> tuple[keras.Variable, keras.Variable]:
    """First and second moment that Adam keeps for a variable.

    Relies on `Adam._momentums` and `_velocities`, and on
    `Optimizer._get_variable_index` (3.10).
    """
    index = require(optimizer, "_get_variable_index")(variable)
    momentums = require(optimizer, "_momentums")
    return momentums[index], require(optimizer, "_velocities")[index]


def restore_in_compilation(
    model: keras.Model, optimizer: keras.optimizers.Optimizer
) -> None:
    """Puts a model's optimizer back among what the model was compiled with.

    Keras takes it out while it writes an `.h5` file, and leaves it so: `.keras` files that
    are saved later would come back with a plain RMSprop. Relies on `_compile_config`, a
    `SerializableDict` whose `config` holds the arguments of `compile` (3.10); models
    whose class has a `compile` of its own may have none.
    """
    compilation = getattr(model, "_compile_config", None)
    if compilation is not None and model.optimizer is optimizer:
        require(compilation, "config").setdefault("optimizer", optimizer)


def _innermost(function: Callable) -> Callable:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function
