"""The codebook: preselected vectors as sorted magnitudes, in little memory."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_dp_ext import noise as noises
from keras_dp_ext._checks import (
    check_count,
    check_not_negative,
    check_positive,
)
from keras_dp_ext._value import plain
from keras_dp_ext.bounding.empirical import EmpiricalDistribution, is_empirical
from keras_dp_ext.noise.base import Noise

#: How the coordinates of a gradient are ordered; see `encoding.encode_rows`.
RANKINGS = ("bucket", "exact")

# Steps are single entries at the top, then grow by this part of the position,
# up to this part of the whole vector.
_RELATIVE_WIDTH = 1 / 16
_GREATEST_WIDTH = 1 / 128
# Profiles are rounded up to this relative grid; see `accounting.Profile`.
_PROFILE_RATIO = 0.002
_PROFILE_FLOOR = 0.01


@dataclasses.dataclass(frozen=True)
class Block:
    """A part of the coordinates that is ranked on its own, and its vectors.

    Coordinate positions count from the greatest magnitude (position 0) to the
    least. All positions in `[ends[j - 1], ends[j])` of vector i have magnitude
    `table[i, j]`.

    Attributes:
        size: Number of coordinates.
        ends: `int64[steps]`, ascending; the last is `size`.
        table: `float32[vectors, steps]`, not increasing along each row.
    """

    size: int
    ends: np.ndarray
    table: np.ndarray

    @property
    def widths(self) -> np.ndarray:
        """Number of positions of each step."""
        return np.diff(self.ends, prepend=0)


@dataclasses.dataclass(frozen=True)
class Codebook:
    """A recipe for vectors that bound encoded gradients (Nasr et al., 3.1).

    Every vector is drawn i.i.d. from a distribution, entries below `threshold`
    become 0, the vector is scaled to norm `norm` and its magnitudes are sorted.
    Only a staircase below the sorted magnitudes is kept: positions are grouped,
    and a group has the magnitude of its least member. The scaling comes
    afterwards, so the staircases *are* the codebook, with norm `norm`: what is
    executed and what is accounted are the same numbers. A thousand vectors take
    about 1 MB, whatever the size of the model; below 256 coordinates nothing
    is grouped at all.

    The staircases are drawn without ever holding a whole vector: the order
    statistics of uniforms at the ends of the groups are ratios of partial sums of
    gamma variables (Rényi's representation), which is their exact joint law.

    A codebook is a small immutable value: two with equal arguments hold equal
    vectors, on every machine and NumPy version (`RandomState` is frozen).

    Args:
        distribution: What the entries are drawn from: a `Noise` or its name
            ("gaussian" is the paper's), an `EmpiricalDistribution` of *public*
            gradients, or a sequence of these, which the vectors take in turn.
        size: Number of vectors.
        norm: L2 norm of every vector.
        threshold: Entries below it are 0, before scaling. The paper needs this
            against underflow; here it only makes vectors a little sparser.
        seed: Of the draw. The codebook is public, so the seed is too.
        layer_sizes: Number of parameters of each trainable variable. If given,
            each variable is ranked on its own; otherwise all are ranked together.
        layer_norms: Norm of each variable's part, relative to each other.
            Defaults to the square root of `layer_sizes`.

    Example:

    >>> codebook = Codebook(size=10, seed=1)
    >>> block, = codebook.blocks(num_parameters=1000)
    >>> norms = (block.table.astype(float) ** 2 @ block.widths) ** 0.5
    >>> bool((abs(norms - 1) < 1e-6).all())
    True

    References:

    - Nasr, Shokri, Houmansadr (2020), "Improving Deep Learning with Differential
      Privacy using Gradient Encoding and Denoising", sections 3.1 and 5.
    """

    distribution: Any = "gaussian"
    size: int = 1000
    norm: float = 1.0
    threshold: float = 1e-5
    seed: int = 0
    layer_sizes: tuple[int, ...] | None = None
    layer_norms: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "distribution", _distributions(self.distribution))
        check_positive("norm", self.norm)
        check_count("size", self.size)
        check_not_negative("threshold", self.threshold)
        object.__setattr__(self, "size", int(self.size))
        object.__setattr__(self, "norm", float(self.norm))
        object.__setattr__(self, "threshold", float(self.threshold))
        object.__setattr__(self, "seed", int(self.seed))
        self._check_layers()

    def _check_layers(self) -> None:
        if self.layer_sizes is None:
            if self.layer_norms is not None:
                raise ValueError(
                    "Argument `layer_norms` must come with `layer_sizes`. "
                    f"Received: layer_norms={self.layer_norms}"
                )
            return
        sizes = tuple(int(size) for size in self.layer_sizes)
        norms = self.layer_norms or tuple(math.sqrt(size) for size in sizes)
        if not sizes or min(sizes) < 1:
            raise ValueError(
                "Argument `layer_sizes` must hold positive integers. "
                f"Received: layer_sizes={self.layer_sizes}"
            )
        if len(norms) != len(sizes):
            raise ValueError(
                "Argument `layer_norms` must have one entry for each layer. "
                f"Received: layer_norms={self.layer_norms}"
            )
        for norm in norms:
            check_positive("layer_norms", norm)
        object.__setattr__(self, "layer_sizes", sizes)
        object.__setattr__(self, "layer_norms", tuple(float(norm) for norm in norms))

    def blocks(self, num_parameters: int) -> tuple[Block, ...]:
        """The vectors for a model of this size, one block for each ranking.

        Args:
            num_parameters: Number of trainable parameters.

        Raises:
            ValueError: If it is not the sum of `layer_sizes`.
        """
        if num_parameters < 1:
            raise ValueError(
                "Argument `num_parameters` must be a positive integer. "
                f"Received: num_parameters={num_parameters}"
            )
        if self.layer_sizes is not None and sum(self.layer_sizes) != num_parameters:
            raise ValueError(
                "Argument `num_parameters` must be the sum of `layer_sizes`. "
                f"Received: num_parameters={num_parameters}, "
                f"layer_sizes={self.layer_sizes}"
            )
        return _draw(self, int(num_parameters))

    def profiles(self, num_parameters: int) -> tuple[np.ndarray, np.ndarray]:
        """What the accountant sees: each vector's magnitudes, rounded up.

        Args:
            num_parameters: Number of trainable parameters.

        Returns:
            Ascending positive `magnitudes` of shape `[bins]` and `counts` of
            shape `[vectors, bins]`: how many entries of a vector have each
            magnitude. Entries that are 0 are left out.
        """
        return _profiles(self, int(num_parameters))

    def serialize(self) -> dict[str, Any]:
        """A JSON dictionary that `codebook.get` turns back."""
        config = {
            field.name: plain(getattr(self, field.name))
            for field in dataclasses.fields(self)
        }
        return {"class_name": type(self).__name__, "config": config}


def get(identifier: Any) -> Codebook:
    """The codebook that `identifier` stands for.

    Args:
        identifier: A `Codebook` or `VectorCodebook`, a dictionary made by its
            `serialize`, `None` for the paper's (1000 standard normal vectors of norm 1),
            or vectors of one's own, `[n, parameters]`.

    Raises:
        ValueError: If it is none of these.
    """
    if identifier is None:
        return Codebook()
    if isinstance(identifier, Codebook):
        return identifier
    if isinstance(identifier, Mapping) and identifier.get("class_name") == "Codebook":
        return Codebook(**identifier["config"])
    if (
        isinstance(identifier, Mapping)
        and identifier.get("class_name") == "VectorCodebook"
    ):
        from keras_dp_ext.bounding.vector_codebook import VectorCodebook

        return VectorCodebook.from_config(identifier["config"])
    if isinstance(identifier, (np.ndarray, Sequence)):
        vectors = np.asarray(identifier)
        if vectors.dtype.kind in "fiu":
            from keras_dp_ext.bounding.vector_codebook import VectorCodebook

            return VectorCodebook(vectors)
    raise ValueError(
        "Argument `codebook` must be a Codebook, a serialised one, an array of vectors "
        f"or None. Received: codebook={identifier}"
    )


def _distributions(identifier: Any) -> tuple[Noise | EmpiricalDistribution, ...]:
    if isinstance(identifier, Sequence) and not isinstance(identifier, str):
        members = [_distributions(item) for item in identifier]
        if not members:
            raise ValueError(
                "Argument `distribution` must not be empty. "
                f"Received: distribution={identifier}"
            )
        return tuple(item for member in members for item in member)
    if isinstance(identifier, EmpiricalDistribution):
        return (identifier,)
    if is_empirical(identifier):
        return (EmpiricalDistribution(**identifier["config"]),)
    return (noises.get(identifier),)


def step_ends(size: int) -> np.ndarray:
    """Ends of the groups of positions: fine at the top, where magnitudes differ."""
    greatest = max(1, int(size * _GREATEST_WIDTH))
    ends = [0]
    while ends[-1] < size:
        width = min(greatest, max(1, int(ends[-1] * _RELATIVE_WIDTH)))
        ends.append(min(size, ends[-1] + width))
    return np.array(ends[1:], np.int64)


# Vectors and profiles are asked for at every trace and at every epoch's end.
@functools.lru_cache(maxsize=8)
def _draw(codebook: Codebook, num_parameters: int) -> tuple[Block, ...]:
    sizes = codebook.layer_sizes or (num_parameters,)
    norms = np.array(codebook.layer_norms or (1.0,))
    norms = codebook.norm * norms / np.linalg.norm(norms)
    random = np.random.RandomState(codebook.seed)
    return tuple(
        _draw_block(codebook, size, norm, random)
        for size, norm in zip(sizes, norms, strict=True)
    )


@functools.lru_cache(maxsize=8)
def _profiles(codebook: Codebook, num_parameters: int) -> tuple[np.ndarray, np.ndarray]:
    blocks = codebook.blocks(num_parameters)
    values = np.concatenate([block.table for block in blocks], axis=1)
    values = values.astype(np.float64)
    widths = np.concatenate([block.widths for block in blocks])
    grid = _profile_grid(values, codebook.norm / math.sqrt(num_parameters))
    # Bin 0 collects the zeros and is dropped.
    bins = np.searchsorted(np.append(0.0, grid), values, side="left")
    counts = np.zeros([codebook.size, grid.size + 1], np.int64)
    np.add.at(counts, (np.arange(codebook.size)[:, None], bins), widths)
    counts = counts[:, 1:]
    used = counts.any(axis=0)
    magnitudes, counts = grid[used], counts[:, used]
    magnitudes.flags.writeable = counts.flags.writeable = False
    return magnitudes, counts


def _draw_block(
    codebook: Codebook, size: int, norm: float, random: np.random.RandomState
) -> Block:
    ends = step_ends(size)
    widths = np.diff(ends, prepend=0)
    # The probability of a greater magnitude, at the last position of each group:
    # uniform order statistics number `ends` out of `size`.
    spacings = random.standard_gamma(
        np.append(widths, 1), size=[codebook.size, widths.size + 1]
    )
    survival = np.cumsum(spacings, axis=1)
    survival = survival[:, :-1] / survival[:, -1:]
    magnitudes = np.empty_like(survival)
    for index, distribution in enumerate(codebook.distribution):
        turn = slice(index, None, len(codebook.distribution))
        magnitudes[turn] = distribution.upper_quantile(0.5 * survival[turn])
    # Rounding in a quantile function may break a tie the wrong way.
    magnitudes = np.minimum.accumulate(magnitudes, axis=1)
    magnitudes[magnitudes < codebook.threshold] = 0.0
    lengths = np.sqrt(np.square(magnitudes) @ widths)
    if not np.all((lengths > 0) & np.isfinite(lengths)):
        raise ValueError(
            "Argument `threshold` must leave some entries of every vector, and "
            "`distribution` must be finite. "
            f"Received: threshold={codebook.threshold}, "
            f"distribution={codebook.distribution}"
        )
    table = round_down(norm * magnitudes / lengths[:, None])
    table.flags.writeable = ends.flags.writeable = False
    return Block(size, ends, table)


def round_down(values: np.ndarray) -> np.ndarray:
    """Float32 numbers that are not greater than the given float64 ones."""
    rounded = values.astype(np.float32)
    return np.where(rounded > values, np.nextafter(rounded, np.float32(0)), rounded)


def _profile_grid(values: np.ndarray, root_mean_square: float) -> np.ndarray:
    """An ascending grid that ends at the greatest value.

    Below 1% of the root mean square (together 1e-4 of the squared norm) it is
    linear; above, relative, so that rounding up costs 0.2% of the RDP.
    """
    distinct = np.unique(values[values > 0])
    if distinct.size <= 1024:
        return distinct
    top = distinct[-1]
    floor = min(top, _PROFILE_FLOOR * root_mean_square)
    steps = math.ceil(math.log(top / floor) / math.log1p(_PROFILE_RATIO))
    relative = top * np.exp(-math.log1p(_PROFILE_RATIO) * np.arange(steps, -1, -1))
    relative[-1] = top
    return np.append(relative[0] * np.arange(1, 16) / 16, relative)
