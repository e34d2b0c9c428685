"""Several workers draw the same lots, and each takes its own rows of every lot.

Under `MultiWorkerMirroredStrategy` each worker runs the whole program, pipeline included.
If each drew lots of its own, one update could hold an example twice, once from each
worker, and would move by two bounds where the noise covers one: so it is with plain
`shuffle`, whose order differs from worker to worker. The workers therefore agree on a
secret seed, draw identical lots from identical data, and `tf.distribute` hands each of
them other rows of these. All of it is checked, not assumed:

1. when a sampler is made: the same examples in the same order, the same `seed`;
2. for every block of lots, before it is used: the same lots, in the same epoch.

What they tell each other (digests, and random numbers for the seed) goes the way of
their gradients before the noise: workers trust each other and their network.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext._compat import tf_workers
from keras_dp_ext.data.sampling.sources import SourceRows

# How long a worker waits for the others.
PATIENCE_SECONDS = 600.0

# Rows that are compared of data that stay on disk.
_COMPARED_ROWS = 256

# All workers run one program: the n-th sampler of one is the n-th of the others.
_numbers = itertools.count()


class Agreement:
    """What the workers have agreed on for one sampler.

    Args:
        seed: The sampler's argument.
        data: All arrays that lots are drawn from, in any structure.

    Attributes:
        seed: From which all workers draw: the argument, or a common secret where there
            are several workers and the argument is `None`.
    """

    def __init__(self, seed: Any, data: Any):
        self.seed = seed
        self._worker = tf_workers.this_worker()
        self._name = f"keras_dp_ext/lots/{next(_numbers)}"
        self._blocks = itertools.count()
        if self._worker.count == 1:
            return
        mine = {"examples": _digest(data), "seed": repr(seed)}
        secret = os.urandom(32).hex()
        told = self._exchange("made", {**mine, "secret": secret})
        for what in mine:
            _require_equal(what, [each[what] for each in told])
        if seed is None:
            secrets = "".join(each["secret"] for each in told)
            self.seed = int(hashlib.sha256(secrets.encode()).hexdigest(), 16)

    def checked(self, blocks: Iterator[np.ndarray], epoch: int) -> Iterator[np.ndarray]:
        """Hands the lots of an epoch on, each block once all workers have drawn it."""
        if tf_workers.this_worker() != self._worker:
            raise ValueError(
                "Make the `tf.distribute` strategy before the lots: workers have to "
                "agree on what they draw."
            )
        if self._worker.count == 1:
            yield from blocks
            return
        for block in blocks:
            told = self._exchange(
                f"block/{next(self._blocks)}",
                {"lots": [epoch, hashlib.sha256(block.tobytes()).hexdigest()]},
            )
            _require_equal("lots", [each["lots"] for each in told])
            yield block

    def _exchange(self, name: str, told: dict[str, Any]) -> list[Any]:
        """What all workers say, in their order; this one says `told`."""
        heard = tf_workers.exchange(
            self._worker, f"{self._name}/{name}", told, PATIENCE_SECONDS
        )
        if None in heard:
            raise ValueError(
                f"Worker {heard.index(None)} did not draw the lots that worker "
                f"{self._worker.index} waits for. All workers must make the same "
                "samplers, and go through them equally often."
            )
        return heard


_DIFFERENCES = {
    "examples": "were given different examples, or in another order. Load all of the "
    "data on each worker, and split or shuffle it with the same seed everywhere",
    "seed": "were given a different `seed`. Pass the same on each, or None",
    "lots": "draw different lots. Pass the same arguments to the sampler on each, and "
    "iterate the lots equally often",
}


def _require_equal(what: str, values: list[Any]) -> None:
    if any(value != values[0] for value in values):
        raise ValueError(
            f"The workers {_DIFFERENCES[what]}: otherwise an example can be in the "
            "rows of two workers, and count twice in one update."
        )


def _digest(data: Any) -> str:
    """A digest of all values; of a source, that of some rows at even distances."""
    total = hashlib.sha256()
    for leaf in tf.nest.flatten(data):
        if isinstance(leaf, SourceRows):
            places = np.linspace(0, len(leaf) - 1, _COMPARED_ROWS).astype(np.int64)
            total.update(str(len(leaf)).encode())
            for array in leaf.read(np.unique(places)):
                _update(total, array)
        elif leaf is not None:
            _update(total, np.asarray(leaf))
    return total.hexdigest()


def _update(total: Any, array: np.ndarray) -> None:
    total.update(f"{array.dtype}{array.shape}".encode())
    if array.dtype.hasobject:
        for value in array.flat:
            text = value if isinstance(value, bytes) else str(value).encode()
            total.update(f"{len(text)} ".encode() + text)
    else:
        total.update(np.ascontiguousarray(array).data.cast("B"))
