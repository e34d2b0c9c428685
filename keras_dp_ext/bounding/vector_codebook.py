"""A codebook of the user's own vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_dp_ext.bounding.codebook import Block, Codebook, round_down, step_ends


class VectorCodebook(Codebook):
    """A codebook of vectors that are given, not drawn.

    Only magnitudes and their order count, so vectors may come as they are or as sorted
    magnitudes. As with `Codebook`, a staircase below the sorted magnitudes is kept;
    below 256 coordinates nothing is grouped. It is not scaled: what is executed and
    what is accounted are the staircases, whatever their norms.

    The vectors must be *public*: made up, or from public data. They are saved by value
    with the model and its ledger.

    Args:
        vectors: `[n, parameters]`, finite, none of them 0. One vector of shape
            `[parameters]` will do.

    Attributes:
        norm: The greatest L2 norm of a staircase: the sensitivity to Gaussian noise.
        size: Number of vectors.

    Raises:
        ValueError: If the vectors are not such.

    Example:

    >>> codebook = VectorCodebook([[0.0, -4.0, 3.0], [1.0, 1.0, 1.0]])
    >>> codebook.blocks(3)[0].table.tolist()
    [[4.0, 3.0, 0.0], [1.0, 1.0, 1.0]]
    >>> codebook.norm
    5.0
    """

    _block: Block
    _content: tuple[int, bytes]

    def __init__(self, vectors: Sequence[Sequence[float]] | np.ndarray):
        magnitudes = np.abs(np.atleast_2d(np.asarray(vectors, np.float64)))
        if (
            magnitudes.ndim != 2
            or not magnitudes.size
            or not np.all(magnitudes < np.finfo(np.float32).max)
        ):
            raise ValueError(
                "Argument `vectors` must be finite numbers of shape [n, parameters]. "
                f"Received: vectors of shape {magnitudes.shape}"
            )
        ends = step_ends(magnitudes.shape[1])
        ordered = -np.sort(-magnitudes, axis=1)
        self._keep(magnitudes.shape[1], round_down(ordered[:, ends - 1]))

    def _keep(self, parameters: int, table: np.ndarray) -> None:
        ends = step_ends(parameters)
        table.flags.writeable = ends.flags.writeable = False
        block = Block(parameters, ends, table)
        lengths = np.sqrt(np.square(table.astype(np.float64)) @ block.widths)
        if not np.all(lengths > 0):
            raise ValueError(
                "Argument `vectors` must not hold a vector that is 0 in float32. "
                f"Received: vectors with L2 norms {lengths}"
            )
        super().__init__(size=table.shape[0], norm=float(lengths.max()), threshold=0.0)
        object.__setattr__(self, "_block", block)
        object.__setattr__(self, "_content", (parameters, table.tobytes()))

    @property
    def num_parameters(self) -> int:
        """Number of trainable parameters of the models that it is for."""
        return self._block.size

    def blocks(self, num_parameters: int) -> tuple[Block, ...]:
        """The vectors, for a model of their size.

        Raises:
            ValueError: If the model has another one.
        """
        if num_parameters != self.num_parameters:
            raise ValueError(
                "Argument `vectors` of a VectorCodebook must have one entry for each "
                f"trainable parameter, {num_parameters}. Received: vectors of "
                f"{self.num_parameters} entries"
            )
        return (self._block,)

    # Two of the same norm and size may hold different vectors; caches must know.
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, VectorCodebook):
            return NotImplemented
        return self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    def __repr__(self) -> str:
        return (
            f"VectorCodebook({self.size} vectors of {self.num_parameters} entries, "
            f"norm={self.norm:.6g})"
        )

    def serialize(self) -> dict[str, Any]:
        """A JSON dictionary, with the staircases, that `codebook.get` turns back."""
        return {
            "class_name": type(self).__name__,
            "config": {
                "parameters": self.num_parameters,
                "table": self._block.table.tolist(),
            },
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> VectorCodebook:
        """The codebook with this `serialize`, to the last bit."""
        codebook = cls.__new__(cls)
        codebook._keep(config["parameters"], np.array(config["table"], np.float32))
        return codebook
