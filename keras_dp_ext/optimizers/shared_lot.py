"""Which releases see the same lot: they compose first, and are amplified once.

Sampling hides who takes part in a lot. Several releases on one lot (a critic that is
updated five times, two optimizers in one `train_step`) hide it only once: accounted
as independent lots they would cost far too little.

While a training step is traced, every private update registers here. All updates of
one traced step share its lot.
"""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from keras_dp_ext._compat import tf_internals
from keras_dp_ext._compat.keras_internals import STEP_FUNCTION
from keras_dp_ext._fit_context import FitContext
from keras_dp_ext.accounting.claim import Claim, lot_claim
from keras_dp_ext.accounting.sampling import Sampling
from keras_dp_ext.gradients.graph import ops as graph_lib
from keras_dp_ext.optimizers.another_thread import in_another_thread

_LOCK = threading.RLock()


@dataclasses.dataclass
class SharedLot:
    """The private updates in one traced step.

    Attributes:
        calls: How often an optimizer (by id) updates, on each replica.
        optimizers: The optimizers, in the order of their first update.
        conditional: Whether some update may be skipped.
    """

    calls: Counter = dataclasses.field(default_factory=Counter)
    optimizers: list[weakref.ref] = dataclasses.field(default_factory=list)
    conditional: bool = False

    def count(self, optimizer: Any) -> int:
        """How often `optimizer` releases on one lot."""
        return max(
            (n for (key, _), n in self.calls.items() if key == id(optimizer)),
            default=0,
        )

    def members(self) -> list[Any]:
        alive = [reference() for reference in self.optimizers]
        return [optimizer for optimizer in alive if optimizer is not None]


_LOTS: weakref.WeakKeyDictionary[Any, SharedLot] = weakref.WeakKeyDictionary()

# The last batch of each replica that had an eager update, by the session.
_EAGER_BATCHES: weakref.WeakKeyDictionary[Any, deque] = weakref.WeakKeyDictionary()


def register_release(optimizer: Any, losses: tf.Tensor) -> None:
    """Notes that the step that is being traced releases once more on its lot.

    Args:
        optimizer: The private optimizer.
        losses: In the graph of the update.

    Raises:
        ValueError: If the number of releases on this lot cannot be known.
    """
    step_graph, inside = _enclosing_step(losses.graph)
    if any(tf_internals.is_loop_body(graph) for graph in inside):
        raise ValueError(
            "A private update inside of a TensorFlow loop releases the same lot an "
            "unknown number of times, so epsilon would be unknown. Write the loop in "
            "Python (`for _ in range(5)`), so that every update is traced."
        )
    with _LOCK:
        lot = _LOTS.setdefault(step_graph, SharedLot())
        if not any(member is optimizer for member in lot.members()):
            lot.optimizers.append(weakref.ref(optimizer))
        lot.calls[id(optimizer), _replica()] += 1
        lot.conditional |= any(
            tf_internals.is_control_flow_body(graph) for graph in inside
        )
        members = lot.members()
        check_places(optimizer, optimizer._recorded_sampling())
        if len(members) == 1 and lot.count(optimizer) == 1:
            return
        _check(lot, members)
    for member in members:
        in_another_thread(member._revise_claim)  # It reads counters.


def check_places(optimizer: Any, sampling: Sampling | None) -> None:
    """Refuses updates that may leave lots out, where examples have places in a pass.

    Of such data as many releases as a pass has lots count as one participation. If only
    each fifth lot is used, an example in it takes part in every release.

    Raises:
        ValueError: If an update of `optimizer` is conditional on data with passes.
    """
    if not _has_passes(sampling):
        return
    with _LOCK:
        lots = list(_LOTS.values())
    if any(lot.conditional and lot.count(optimizer) for lot in lots):
        raise ValueError(
            "A private update inside of a `tf.cond` may leave lots out, so it is unknown "
            "how many passes over the data there were. Make the update in every step, or "
            "train on `keras_dp_ext.data.poisson_batches`, where each lot is drawn by "
            f"itself. Received: {sampling.describe()}"
        )


def check_places_eagerly(optimizer: Any, context: FitContext | None) -> None:
    """Refuses eager updates of a `fit` on data with passes.

    Python decides anew in each step whether to update: see `check_places`.

    Raises:
        ValueError: If the data of this `fit` have passes.
    """
    sampling = optimizer._recorded_sampling()
    if context is None or context.is_single_batch or not _has_passes(sampling):
        return
    raise ValueError(
        "With `run_eagerly=True` a training step may leave lots out, so it is unknown "
        "how many passes over the data there were. Compile the model without "
        "`run_eagerly=True`, or train on `keras_dp_ext.data.poisson_batches`, where each "
        f"lot is drawn by itself. Received: {sampling.describe()}"
    )


def _has_passes(sampling: Sampling | None) -> bool:
    return sampling is not None and sampling.period > 1


def check_only_release(context: FitContext | None) -> None:
    """Refuses a second eager update on the same batch of a `fit`, by any optimizer.

    A traced step registers all of its updates before the first of them runs. Eager
    updates run one after the other, and each would count as the only one on its lot.

    Raises:
        ValueError: If this batch had its update, or cannot be seen.
    """
    if context is None or context.is_single_batch:
        return  # Nothing is amplified, unless a custom loop says so itself.
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    with _LOCK:
        seen = _EAGER_BATCHES.setdefault(context.session, deque(maxlen=replicas))
        if context.step_data is None or any(b is context.step_data for b in seen):
            raise ValueError(
                "With `run_eagerly=True` a training step can make one private update "
                "on each batch, in `train_step`: the cost of several on one lot must "
                "be known before the first. Compile the model without "
                "`run_eagerly=True`."
            )
        seen.append(context.step_data)


def claim_of_lot(optimizer: Any) -> Claim:
    """What a lot costs on which `optimizer` and its companions release.

    Steps of different structure may be alive at the same time (the last batch of an
    epoch is traced apart). The greatest number of releases counts for the cost of a
    lot, the smallest for how many lots there were.
    """
    own = optimizer._own_claim()
    with _LOCK:
        lots = [lot for lot in _LOTS.values() if lot.count(optimizer)]
        most: Counter = Counter()
        members = {id(m): m for lot in lots for m in lot.members()}
        for lot in lots:
            for member in lot.members():
                most[id(member)] = max(most[id(member)], lot.count(member))
        least = min((lot.count(optimizer) for lot in lots), default=1)
    if sum(most.values()) < 2:
        return own
    parts = [
        (own if members[key] is optimizer else members[key]._own_claim(), count)
        for key, count in most.items()
    ]
    return lot_claim(parts, releases_per_lot=least)


def most_releases_per_lot(optimizer: Any) -> int:
    """How often `optimizer` releases on one lot at the most."""
    with _LOCK:
        return max((lot.count(optimizer) for lot in _LOTS.values()), default=0) or 1


def companions(optimizer: Any) -> list[Any]:
    """Other optimizers that release on the same lots."""
    with _LOCK:
        return [
            member
            for lot in _LOTS.values()
            if lot.count(optimizer)
            for member in lot.members()
            if member is not optimizer
        ]


def _check(lot: SharedLot, members: Sequence[Any]) -> None:
    if lot.conditional:
        raise ValueError(
            "Several private updates share a lot, and one of them is inside of a "
            "`tf.cond`, so the number of releases on that lot is unknown. Make every "
            "update of the step unconditional, or train with one optimizer."
        )
    if any(member._accumulation_steps > 1 for member in members):
        raise ValueError(
            "Argument `gradient_accumulation_steps` must be None where a training step "
            "makes several private updates on one batch: each would be taken for a "
            "batch of its own."
        )


def _enclosing_step(graph: Any) -> tuple[Any, list[Any]]:
    """The graph that handles one batch, and those between it and `graph`."""
    chain = [graph]
    while tf_internals.is_function_graph(tf_internals.outer_graph(chain[-1])):
        chain.append(tf_internals.outer_graph(chain[-1]))
    for number, candidate in enumerate(chain):
        if candidate.name == STEP_FUNCTION or _draws_batch(candidate):
            return candidate, chain[:number]
    return chain[-1], chain[:-1]


def _draws_batch(graph: Any) -> bool:
    """Whether a graph takes a new batch in each run, as a loop over batches does."""
    return any(op.type in graph_lib.DATA_OPS for op in graph.get_operations())


def _replica() -> int:
    context = tf.distribute.get_replica_context()
    if context is None:
        return 0
    number = tf.get_static_value(context.replica_id_in_sync_group)
    return 0 if number is None else int(number)
