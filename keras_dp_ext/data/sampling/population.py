"""Those from whom lots are drawn: the rows of a data set, or people with their rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from keras_dp_ext._checks import check_integer
from keras_dp_ext.accounting.sampling import Sampling
from keras_dp_ext.data.sampling import arrays, pipeline
from keras_dp_ext.data.sampling.class_weight import with_class_weight
from keras_dp_ext.data.sampling.label import SamplingLabel, attach
from keras_dp_ext.data.sampling.people import People, people_of
from keras_dp_ext.data.sampling.workers import Agreement

#: Draws the lots of one epoch, some at a time: int32 arrays `[lots, slots]` with the
#: numbers of those who take part; `Population.size` stands for an empty slot.
LotSource = Callable[[np.random.Generator], Iterator[np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Population:
    """A data set from which examples, or people, are drawn.

    Attributes:
        x: Array, nest of arrays or `SourceRows`.
        y: Array, nest of arrays or `None`.
        sample_weight: `[rows]` array or `None`.
        size: How many examples, or people, there are.
        people: To whom the rows belong; `None` where each row is an example.
        agreement: From which seed all workers draw.
        is_seeded: Whether the user has passed a seed.
    """

    x: Any
    y: Any
    sample_weight: np.ndarray | None
    size: int
    people: People | None
    agreement: Agreement
    is_seeded: bool

    @classmethod
    def of(
        cls,
        x: Any,
        y: Any,
        sample_weight: Any,
        class_weight: Mapping[int, float] | None = None,
        user_ids: Any = None,
        examples_per_user: int | None = None,
        *,
        seed: pipeline.Seed,
    ) -> Population:
        """From the arguments of a sampler, checked; see `poisson_batches`."""
        x, y, sample_weight, num_rows = arrays.as_rows(x, y, sample_weight)
        sample_weight = with_class_weight(sample_weight, class_weight, y)
        people = people_of(user_ids, num_rows, examples_per_user)
        size = num_rows if people is None else people.count
        agreement = Agreement(seed, (x, y, sample_weight, user_ids))
        return cls(x, y, sample_weight, size, people, agreement, seed is not None)

    @property
    def unit(self) -> str:
        """What is drawn, and protected."""
        return "example" if self.people is None else "person"

    @property
    def rows_per_unit(self) -> int:
        """How many rows of a batch a slot has."""
        return 1 if self.people is None else self.people.rows_per_person

    def check_batch_size(self, batch_size: Any) -> None:
        """Raises unless so many can be drawn."""
        check_integer("batch_size", batch_size)
        if batch_size > self.size:
            raise ValueError(
                "Argument `batch_size` must be at most the number of examples "
                f"({self.size}). Received: batch_size={batch_size}"
            )

    def batches(
        self,
        draw_lots: LotSource,
        sampling: Sampling,
        *,
        batch_size: int,
        slots: int,
        steps_per_epoch: int,
        accumulation_steps: int,
        masked: bool = True,
        num_examples: int | None = None,
    ) -> tf.data.Dataset:
        """The pipeline of a sampler, with its label.

        Args:
            draw_lots: Draws the lots of an epoch.
            sampling: The scheme, for the accountant.
            batch_size: The public number of examples, or people, in a lot.
            slots: Places for them in one batch.
            steps_per_epoch: Number of lots in an epoch.
            accumulation_steps: Number of batches over which a lot is spread.
            masked: Whether slots can be empty.
            num_examples: The public number of all; by default `size`.
        """
        people, rows_per_batch = self.people, slots * self.rows_per_unit

        def draw(rng: np.random.Generator) -> Iterator[np.ndarray]:
            order = None if people is None else people.shuffled(rng)
            for lots in draw_lots(rng):
                if people is not None:
                    lots = people.rows_of(lots, order, rng)
                yield lots.reshape([-1, rows_per_batch])

        dataset = pipeline.batches_from_indices(
            draw,
            self.x,
            self.y,
            self.sample_weight,
            num_batches=steps_per_epoch * accumulation_steps,
            physical_batch_size=rows_per_batch,
            masked=masked,
            agreement=self.agreement,
        )
        label = SamplingLabel(
            sampling=sampling,
            num_examples=self.size if num_examples is None else num_examples,
            expected_batch_size=batch_size,
            accumulation_steps=accumulation_steps,
            steps_per_epoch=steps_per_epoch,
            masked=masked,
            rows_per_unit=self.rows_per_unit,
            is_seeded=self.is_seeded,
        )
        return attach(dataset, label)


def slots_of_a_batch(batch_size: int, accumulation_steps: Any) -> int:
    """Slots of one batch, where a lot has exactly `batch_size`."""
    check_integer("accumulation_steps", accumulation_steps)
    if batch_size % accumulation_steps:
        raise ValueError(
            "Argument `batch_size` must be a multiple of `accumulation_steps`. "
            f"Received: batch_size={batch_size}, "
            f"accumulation_steps={accumulation_steps}"
        )
    return batch_size // accumulation_steps
