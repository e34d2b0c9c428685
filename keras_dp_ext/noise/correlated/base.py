"""What correlated noise is: a strategy matrix, and how its noise is drawn."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from keras_dp_ext._value import Value
from keras_dp_ext.noise import uniform
from keras_dp_ext.noise.scaled import ScaledNoise

if TYPE_CHECKING:
    import tensorflow as tf


class CorrelatedNoise(ScaledNoise, Value, abc.ABC):
    """Gaussian noise whose draws depend on each other, release by release.

    With C a lower triangular matrix of nonnegative numbers (the *strategy*) and Z
    independent normals, one row for each release, the noise is `scale * C^-1 Z`. Of
    the sums G that are noised the releases tell no more than `C G + scale * Z` does:
    one Gaussian release of the whole training, whose sensitivity is how far one example
    can move C G (`accounting/participation.py` computes it). Training adds noised sums up.
    Negative correlations let the noise of that sum cancel, and C is chosen so that it does.

    A value knows nothing of a training. Its state (past noise, or the seeds to draw it
    again) is made by `make_memory`, belongs to the optimizer, and is as secret as the
    data: it is never saved. A training that is resumed begins with an empty memory and
    fresh noise, as another run of the mechanism, and is accounted as one.

    A subclass is a frozen dataclass with a field `scale`. `keras_dp_ext.noise.get_any` knows
    it by its class name and its `name`.

    References:

    - Denisov, McMahan, Rush, Smith, Thakurta (2022), "Improved Differential Privacy for
      SGD via Optimal Private Linear Operators on Adaptive Streams", Theorem 2.1: what is
      proven for a fixed stream holds for gradients that depend on former releases.
    """

    # The strategy, in NumPy ---------------------------------------------------

    @abc.abstractmethod
    def encode(self, x: np.ndarray) -> np.ndarray:
        """`C x` for the first `len(x)` releases, along the first axis."""

    @abc.abstractmethod
    def noise_from(self, z: np.ndarray) -> np.ndarray:
        """`C^-1 z`, along the first axis: the inverse of `encode`."""

    @property
    def strategy_bands(self) -> int | None:
        """How many diagonals of C are not 0, if they are few: columns as far apart have
        no row in common. `None`: any two may."""
        return None

    #: Whether row t + 1 of C is row t moved by one, for all t.
    is_toeplitz: ClassVar[bool] = True

    def matrix(self, steps: int) -> np.ndarray:
        """C for the first `steps` releases, `[steps, steps]`."""
        return self.encode(np.eye(steps))

    # Drawing, in TensorFlow ---------------------------------------------------

    @abc.abstractmethod
    def make_memory(self, size: int, add_variable: Callable[..., Any]) -> list[Any]:
        """Variables in which `remember` keeps what later draws need.

        Args:
            size: Number of coordinates.
            add_variable: As for `Mechanism.build`.
        """

    @abc.abstractmethod
    def draw(
        self, size: int, seed: tf.Tensor, step: tf.Tensor, memory: Sequence[Any]
    ) -> tf.Tensor:
        """The noise of one release, `[size]`; changes nothing.

        Args:
            size: Number of coordinates.
            seed: `int32[2]`, fresh.
            step: `int64`, the number of releases of this run before this one.
            memory: What `make_memory` has made. It is not read beyond `step`: a new
                run, which begins with step 0, knows nothing of the one before.
        """

    @abc.abstractmethod
    def remember(
        self, drawn: tf.Tensor, seed: tf.Tensor, step: tf.Tensor, memory: Sequence[Any]
    ) -> None:
        """Keeps what was drawn, once it has been released."""


def standard_normal(size: int, seed: tf.Tensor) -> tf.Tensor:
    """Independent standard normals, `[size]`."""
    from keras_dp_ext.noise.gaussian import Gaussian

    return Gaussian().sample([size], seed)


def add_seeds(count: int, name: str, add_variable: Callable[..., Any]) -> Any:
    """A table of seeds, from which the past can be drawn again: as secret as the data."""
    return add_variable(
        shape=(count, uniform.seed_size()),
        dtype="int32",
        name=name,
        initializer="zeros",
        saved=False,
    )


def get_row(variable: Any, row: tf.Tensor) -> tf.Tensor:
    """`variable[row]`, without a copy of the whole where there is one of it."""
    import tensorflow as tf

    inner = getattr(variable, "value", variable)
    if hasattr(inner, "values"):  # One copy on each replica.
        return tf.gather(tf.convert_to_tensor(variable), row)
    return inner.sparse_read(row)


def set_row(variable: Any, row: tf.Tensor, value: tf.Tensor) -> None:
    """`variable[row] = value`, in place where there is one copy of it."""
    import tensorflow as tf

    inner = getattr(variable, "value", variable)
    index = tf.reshape(tf.cast(row, tf.int32), [1, 1])
    if hasattr(inner, "values"):  # One copy on each replica.
        whole = tf.convert_to_tensor(variable)
        variable.assign(tf.tensor_scatter_nd_update(whole, index, value[tf.newaxis]))
    else:
        inner.scatter_nd_update(index, value[tf.newaxis])
