"""What `model.fit` was called with, for those it calls.

Keras tells neither an optimizer nor a callback about the data. Both run inside
`fit`, though, whose frame holds the arguments (`_compat/keras_internals.py`).
Everything found here can also be passed explicitly.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from keras_dp_ext._compat import keras_internals
from keras_dp_ext.accounting.sampling import Sampling, Shuffled

if TYPE_CHECKING:
    import keras

    from keras_dp_ext._compat.keras_internals import RunningTraining


@dataclasses.dataclass(frozen=True)
class FitContext:
    """The data of a running `fit`, as far as it can be known.

    Attributes:
        model: The model that is being fitted.
        num_examples: Size of the training set.
        batch_size: What the user calls so, in `fit`, `batch` or a sampler. It is public,
            and an expectation where lots are drawn at random. See `lot_size`.
        steps_per_epoch: Batches that Keras draws in an epoch.
        epochs: The `epochs` argument.
        sampling: How batches are drawn, if known. Keras goes on with a pass over the
            data in the next epoch where `steps_per_epoch` cuts it short.
        unknown: Why it is not known how batches are drawn; `None` where it is.
        is_single_batch: Whether this is `train_on_batch`, whose batch size is
            that of the data at hand and not known to be public.
        accumulation_steps: Over how many batches the pipeline spreads a lot;
            `None` where it does not say.
        is_masked: Whether the pipeline marks padding by a sample weight of 0.
        step_data: The batch, as the training step that is being traced sees it.
        batches: What tells one pass over the data from the next: Keras' iterator over
            its batches. `None` outside of a `fit` and before its first step.
        session: What tells one training from the next: an object that belongs to
            this `fit`, or the model where `train_on_batch` is called repeatedly.
        input_spec: Shapes and types of `x` in the batches of a `fit`.
        rows_per_epoch: Rows that one pass over the data has, the last, partial batch
            included; `None` where it cannot be seen.
        data: What `fit` got as `x`.
        rows_per_unit: How many consecutive rows belong to one person, where
            `sampling.unit` is "person"; `num_examples` and `batch_size` count people
            then.
        is_seeded: Whether the lots of a sampler follow from a seed of the user's.
    """

    model: Any
    num_examples: int | None = None
    batch_size: int | None = None
    steps_per_epoch: int | None = None
    epochs: int | None = None
    sampling: Sampling | None = None
    unknown: str | None = None
    accumulation_steps: int | None = None
    is_single_batch: bool = False
    is_masked: bool = False
    step_data: Any = None
    batches: Any = None
    session: Any = None
    input_spec: Any = None
    rows_per_epoch: int | None = None
    data: Any = None
    rows_per_unit: int = 1
    is_seeded: bool = False

    @property
    def unit(self) -> str:
        """What one microbatch belongs to: an "example" or a "person"."""
        return "example" if self.sampling is None else self.sampling.unit

    def lot_size(self, accumulation_steps: int) -> int | None:
        """The public, expected number of examples, or people, of one release.

        A sampler is told the size of its lots, `fit` and `batch` that of batches.

        Args:
            accumulation_steps: Batches that the optimizer puts into a lot.
        """
        if self.batch_size is None or self.accumulation_steps is not None:
            return self.batch_size
        return self.batch_size * accumulation_steps


def find_fit(optimizer: Any = None) -> FitContext | None:
    """The innermost running `model.fit` or `train_on_batch`, or `None`.

    Args:
        optimizer: Whose training is looked for in other threads, if there is none
            in this one: `tf.distribute` traces each replica in its own thread.
    """
    training = keras_internals.running_training(optimizer)
    if training is None:
        return None
    iterator = training.epoch_iterator
    return dataclasses.replace(
        _read(training),
        session=training.model if iterator is None else iterator,
        input_spec=_input_spec(iterator),
        step_data=training.step_data,
        batches=training.batches,
        data=training.arguments["x"],
    )


def _read(training: RunningTraining) -> FitContext:
    import tensorflow as tf

    model, arguments, iterator = (
        training.model,
        training.arguments,
        training.epoch_iterator,
    )
    x = arguments["x"]
    if iterator is None:
        return FitContext(model, batch_size=_num_rows(x), is_single_batch=True)
    common = {
        "steps_per_epoch": keras_internals.batches_per_epoch(iterator)
        or arguments["steps_per_epoch"],
        "epochs": arguments["epochs"],
    }
    if isinstance(x, tf.data.Dataset):
        return _read_dataset(model, x, common)
    batch_size = keras_internals.array_batch_size(iterator)
    if batch_size is None:
        kind = type(x).__name__
        unknown = f"a {kind} may yield any example, any number of times"
        return FitContext(model, unknown=unknown, **common)
    num_examples = _num_rows(x)
    return FitContext(
        model,
        num_examples=num_examples,
        batch_size=batch_size,
        sampling=Shuffled(
            steps_per_epoch=math.ceil(num_examples / batch_size),
            rate=min(1.0, batch_size / num_examples),
        ),
        rows_per_epoch=num_examples,
        **common,
    )


def _input_spec(iterator: Any) -> Any:
    # Where there is none, a model that is not built yet is refused.
    if iterator is None:
        return None
    spec = keras_internals.dataset_of_fit(iterator).element_spec
    return spec[0] if isinstance(spec, (list, tuple)) and spec else spec


def _read_dataset(model: keras.Model, dataset: Any, common: Any) -> FitContext:
    from keras_dp_ext.data.sampling.label import sampling_of, why_unlabelled
    from keras_dp_ext.data.sampling.plain import NotPlainError, read_plain

    label = sampling_of(dataset)
    if label is not None:
        return FitContext(
            model,
            num_examples=label.num_examples,
            batch_size=label.expected_batch_size,
            steps_per_epoch=label.steps_per_epoch * label.accumulation_steps,
            epochs=common["epochs"],
            sampling=label.sampling,
            accumulation_steps=label.accumulation_steps,
            is_masked=label.masked,
            rows_per_unit=label.rows_per_unit,
            is_seeded=label.is_seeded,
        )
    batch_size, rows = _batching(dataset)
    common = {**common, "rows_per_epoch": rows}
    unknown = why_unlabelled(dataset)
    if unknown is not None:
        return FitContext(model, batch_size=batch_size, unknown=unknown, **common)
    try:
        plain = read_plain(dataset)
    except NotPlainError as error:
        return FitContext(model, batch_size=batch_size, unknown=str(error), **common)
    return FitContext(
        model,
        num_examples=plain.num_examples,
        batch_size=plain.batch_size,
        sampling=Shuffled(
            steps_per_epoch=plain.pass_length,
            rate=min(1.0, plain.batch_size / plain.num_examples),
        ),
        **common,
    )


def _num_rows(x: Any) -> int | None:
    import keras

    for leaf in keras.tree.flatten(x):
        shape = getattr(leaf, "shape", None)
        if shape is not None and len(shape) > 0:
            return int(shape[0])
    return None


def _batching(dataset: Any) -> tuple[int | None, int | None]:
    """Batch size of a `tf.data` pipeline, by its spec or `.batch(n)`, and its rows."""
    import keras
    import tensorflow as tf

    from keras_dp_ext._compat import tf_datasets

    for spec in keras.tree.flatten(dataset.element_spec):
        if isinstance(spec, tf.TensorSpec) and spec.shape.rank and spec.shape[0]:
            return int(spec.shape[0]), None
    batching = tf_datasets.last_batching(dataset)
    if batching is None:
        return None, None
    batch_size, batched = batching
    return batch_size, _cardinality(batched)


def _cardinality(dataset: Any) -> int | None:
    import tensorflow as tf

    with tf.init_scope():  # Also while a training step is traced.
        rows = int(dataset.cardinality())
    return rows if rows >= 0 else None
