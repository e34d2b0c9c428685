"""What an optimizer has released: its counter and its ledger, saved and restored."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_dp_ext.accounting import Claim, Ledger, Sampling
from keras_dp_ext.optimizers.noise_source import NoiseSource
from keras_dp_ext.optimizers.spent_budget import SpentBudget

_LEDGER_KEY = "privacy_ledger"
_RELEASES_KEY = "privacy_releases"


class Spending:
    """The counter of releases, and the ledger that says what each of them was.

    Args:
        name: Name scope of the counter.
        noise_source: Gets a new key whenever something is restored: old noise on
            new data would cancel out.
    """

    def __init__(self, name: str, noise_source: NoiseSource):
        self._noise_source = noise_source
        self._restored = 0
        # Not by `add_variable`: a checkpoint must not set the counter back.
        with keras.name_scope(name):
            self.releases = keras.Variable(
                0,
                dtype="int64",
                trainable=False,
                aggregation="only_first_replica",
                name="releases",
            )
            # The first release of the run under way, for correlated noise. It follows
            # the ledger: what counts as a run of its own has noise of its own.
            self.run_start = keras.Variable(
                0,
                dtype="int64",
                trainable=False,
                aggregation="only_first_replica",
                name="run_start",
            )
        self.ledger = Ledger(lambda: self.count, self._begin_run)

    @property
    def count(self) -> int:
        with tf.init_scope():
            return int(self.releases.numpy())

    @property
    def executed(self) -> int:
        """Releases of this process; `count` also has what was restored."""
        return self.count - self._restored

    def _begin_run(self, start: int) -> None:
        with tf.init_scope():
            self.run_start.assign(start)

    def open_segment(self, claim: Claim, sampling: Sampling) -> None:
        """Records mechanism and sampling for all releases from now on."""
        self.ledger.open(self.count, claim, sampling)

    def continue_from(self, former: Spending) -> None:
        """Counts the releases of another optimizer as its own."""
        if self.count:
            raise ValueError(
                "`continue_from` must be called before this optimizer has trained. "
                f"Received: {self.count} releases of its own"
            )
        self.restore(*former._read())

    # Saving ------------------------------------------------------------------

    def trackable(self) -> SpentBudget:
        """What TensorFlow's checkpoints save and restore."""
        return SpentBudget(self._read, self.restore)

    def _read(self) -> tuple[int, str]:
        text = self.ledger.to_json()
        return json.loads(text)["releases"], text

    def save(self, store: MutableMapping[str, Any]) -> None:
        # With a key of its own: Keras loads no variable at all where their number
        # has changed, e.g. with the base optimizer.
        releases, text = self._read()
        store[_RELEASES_KEY] = np.int64(releases)
        store[_LEDGER_KEY] = np.frombuffer(text.encode(), np.uint8)

    @staticmethod
    def take_from(store: MutableMapping[str, Any]) -> tuple[int, str] | None:
        """Removes what `save` has written; `None` where there is nothing."""
        text = store.pop(_LEDGER_KEY, None)
        releases = store.pop(_RELEASES_KEY, 0)
        if text is None:
            return None
        return int(np.asarray(releases)), np.asarray(text).tobytes().decode()

    def restore(self, releases: int, ledger_text: str) -> None:
        """Adds what a checkpoint has spent to what is known already."""
        before = self.count
        saved = Ledger.from_json(ledger_text)
        self.releases.assign(self.ledger.restore(saved, releases))
        self._restored += self.count - before
        self._noise_source.renew()
