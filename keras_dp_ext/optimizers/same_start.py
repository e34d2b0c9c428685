"""Several workers must begin a training in one and the same state.

`tf.distribute` keeps weights equal by making the same update on each worker, and compares
nothing. If one of them loads a backup and another one does not, they train different
models from then on without a sign, and the ledger of one lacks what the other knows was
released. So they tell each other digests of what they hold, at the start of each training.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import keras

from keras_dp_ext._compat import keras_internals, keras_workers, tf_workers

# How long a worker waits for the others: for their files, and for their first trace.
PATIENCE_SECONDS = 600.0

# All workers run one program: the n-th training of one is the n-th of the others.
_numbers = itertools.count()


def begins_with_others(strategy: Any) -> bool:
    """Whether a training under this strategy is shared with other workers."""
    return keras_workers.has_several_workers(strategy)


def check_same_start(optimizer: Any) -> None:
    """Raises unless all workers have the same weights, counters and ledger.

    Args:
        optimizer: The private optimizer, built.

    Raises:
        ValueError: If a worker differs, or does not begin the training.
    """
    worker = tf_workers.this_worker()
    mine = {
        "releases": optimizer._spending.count,
        "ledger": _digest_of_ledger(optimizer.ledger),
        "weights": _digest_of(keras_internals.variables_of(optimizer)),
        "optimizer": _digest_of(optimizer.variables),
    }
    name = f"keras_dp_ext/start/{next(_numbers)}"
    told = tf_workers.exchange(worker, name, mine, PATIENCE_SECONDS)
    if None in told:
        raise ValueError(
            f"Worker {told.index(None)} did not begin the training that worker "
            f"{worker.index} begins. All workers must run the same program."
        )
    differing = [
        what for what, value in mine.items() if any(one[what] != value for one in told)
    ]
    if differing:
        counts = [one["releases"] for one in told]
        raise ValueError(
            "The workers begin this training in different states, which would stay "
            "different. Load weights, backups and ledgers on all of them or on none; "
            "`keras_dp_ext.callbacks.AtomicBackup` restores the backup of the first "
            f"worker on all. Received: other {' and '.join(differing)}, with "
            f"{counts} releases so far"
        )


def _digest_of_ledger(ledger: Any) -> str:
    """Of what was released and at what cost: ids are random on each worker."""
    lines = [(s.start, repr(s.claim), repr(s.sampling)) for s in ledger.segments]
    lines += [(s.count, repr(s.claim), repr(s.sampling)) for s in ledger.one_offs]
    return hashlib.sha256(repr(lines).encode()).hexdigest()


def _digest_of(variables: list[keras.Variable]) -> str:
    total = hashlib.blake2b()
    for variable in variables:
        value = keras.ops.convert_to_numpy(variable)
        total.update(f"{value.dtype}{value.shape}".encode() + value.tobytes())
    return total.hexdigest()
