"""What layers that are adapted privately have in common: their claim and their account."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from keras_dp_ext._checks import check_noise_multiplier
from keras_dp_ext._compat import tf_datasets
from keras_dp_ext.accounting.calibration import calibrate_noise
from keras_dp_ext.accounting.claim import Claim
from keras_dp_ext.accounting.events import GaussianRelease
from keras_dp_ext.accounting.records import OneOff
from keras_dp_ext.accounting.sampling import FullBatch, Sampling, Shuffled
from keras_dp_ext.data.sampling.label import sampling_of

if TYPE_CHECKING:
    from typing_extensions import Self

# Rows that are read at once.
_CHUNK = 4096

# 32-bit words of the id of a release.
ID_WORDS = 4


class PrivatelyAdapted(keras.layers.Layer):
    """A layer whose `adapt` makes one Gaussian release, which the layer remembers.

    Every model that has the layer, or whose pipeline uses it in `map`, finds the release
    (`privacy_releases`) and has it in its ledger by itself.

    A subclass calls `_add_account` at the end of `build`, and `_count_release` once
    `adapt` has released something.
    """

    def __init__(self, noise_multiplier: float, **kwargs: Any):
        kwargs["trainable"] = False
        super().__init__(**kwargs)
        check_noise_multiplier(noise_multiplier)
        self._noise_multiplier = float(noise_multiplier)

    @classmethod
    def for_budget(cls, *, epsilon: float, delta: float, **arguments: Any) -> Self:
        """A layer whose `adapt` spends a share of the budget.

        Args:
            epsilon: What `adapt` may spend by itself. A tenth of the whole is enough for
                means and deviations. Together with a training it costs less than the
                sum: `for_budget` of the optimizers takes the layer as `adapted`.
            delta: Target delta of the whole.
            **arguments: Other arguments of the layer.

        Returns:
            The layer.
        """
        if "noise_multiplier" in arguments:
            raise ValueError(
                "Argument `noise_multiplier` is what `for_budget` finds. Received: "
                f"noise_multiplier={arguments['noise_multiplier']}"
            )
        sigma = calibrate_noise(
            GaussianRelease, FullBatch(), 1, target_epsilon=epsilon, delta=delta
        )
        return cls(noise_multiplier=sigma, **arguments)

    @property
    def noise_multiplier(self) -> float:
        """The noise. It can be set until `adapt` has used it."""
        return self._noise_multiplier

    @noise_multiplier.setter
    def noise_multiplier(self, value: float) -> None:
        if self.releases:
            raise ValueError(
                "Attribute `noise_multiplier` must not change once the layer is "
                "adapted: the claim is about the noise that was used. "
                f"Received: noise_multiplier={value}"
            )
        check_noise_multiplier(value)
        self._noise_multiplier = float(value)

    @property
    def claim(self) -> Claim:
        """What one `adapt` costs."""
        return Claim(proven=GaussianRelease(self.noise_multiplier))

    @property
    def sampling(self) -> Sampling:
        """How `adapt` chooses its rows."""
        return FullBatch()

    @property
    def releases(self) -> int:
        """How often the layer has been adapted; saved with the model."""
        return int(self._releases) if self.built else 0

    def privacy_releases(self) -> list[OneOff]:
        """What `adapt` has released, for the ledger of the training that uses it.

        The id is saved with the layer, so that models which share it share its cost.
        After a second `adapt` the id is another one, and counts for both.
        """
        if not self.releases:
            return []
        words = np.asarray(keras.ops.convert_to_numpy(self._release_id), np.int32)
        if not words.any():
            # From a file that knew no ids, or by `set_weights`.
            words = self._renew_id()
        return [OneOff(self.claim, self.sampling, self.releases, words.tobytes().hex())]

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        del config["trainable"]
        return {**config, "noise_multiplier": self.noise_multiplier}

    def _add_account(self) -> None:
        """Adds the weights that say how often the layer was adapted, and its id."""
        self._releases = self.add_weight(
            shape=(),
            initializer="zeros",
            dtype="int32",
            trainable=False,
            name="releases",
        )
        self._release_id = self.add_weight(
            shape=(ID_WORDS,),
            initializer="zeros",
            dtype="int32",
            trainable=False,
            name="release_id",
        )

    def _count_release(self) -> None:
        self._releases.assign_add(1)
        self._renew_id()

    def _renew_id(self) -> np.ndarray:
        words = np.frombuffer(os.urandom(4 * ID_WORDS), np.int32)
        self._release_id.assign(words)
        return words


def batches_of(data: Any) -> Iterator[np.ndarray]:
    """Arrays with one leading batch axis, in pieces that fit into memory.

    Raises:
        ValueError: If an example may occur twice: it would count twice.
    """
    if isinstance(data, tf.data.Dataset):
        label = sampling_of(data)
        resampled = label is not None and not isinstance(label.sampling, Shuffled)
        infinite = int(data.cardinality()) == tf.data.INFINITE_CARDINALITY
        repeated = tf_datasets.is_repeated(data)
        repeated |= tf_datasets.joins_one_source_twice(data)
        if resampled or infinite or repeated:
            raise ValueError(
                "Argument `data` must be finite and hold each example once: an "
                "example that occurs twice counts twice in what is released. Pass the "
                f"arrays, or a pipeline without sampling. Received: data={data}"
            )
        for batch in data:
            rows = np.asarray(batch[0] if isinstance(batch, tuple) else batch)
            if isinstance(batch, tuple) and len(batch) == 3:
                # Whatever a `map` has made of padding must not become a row: an
                # example would take its place instead of joining in.
                rows = rows[np.reshape(batch[2], [len(rows), -1])[:, 0] != 0]
            yield rows
        return
    data = np.asarray(data)
    for start in range(0, len(data), _CHUNK):
        yield data[start : start + _CHUNK]
