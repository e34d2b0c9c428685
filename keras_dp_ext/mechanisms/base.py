"""A mechanism: BOUND -> sum -> NOISE -> REFINE, and the privacy it claims."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from keras_dp_ext._value import plain

if TYPE_CHECKING:
    import tensorflow as tf

    from keras_dp_ext.accounting import Claim
    from keras_dp_ext.accounting.events import Event
    from keras_dp_ext.accounting.training_plan import TrainingPlan
    from keras_dp_ext.gradients import PerExampleGradients


class Mechanism(abc.ABC):
    """One private release of a sum of per-example gradients.

    A mechanism is independent of Keras and of the optimizer that uses it. Its
    constructor's keyword arguments become those of every optimizer made from it
    (`dp.optimizers.make_private(keras.optimizers.Lion, mechanism=MyMechanism)`),
    and its `claim` feeds accountant, audit and command line.

    The four methods below are called in this order, once for every release. Only
    `bound` sees private data; `draw_noise` must not depend on it at all;
    `refine` sees only what has been noised.
    """

    #: Short name, used by the command line and in reports.
    name: str

    #: "proven" runs a form of which the claim holds, "published" the paper's letter.
    guarantee: str = "proven"

    #: The codebook that its rows are clamped to, if there is one: for audits.
    codebook: Any = None

    #: The budget of a printed accounting, if `published_epsilon` has one.
    published_budget: Any = None

    #: How batches are drawn for it by default; one of `_names.SAMPLINGS`.
    default_sampling = "poisson"

    def build(self, variables: Sequence[Any], add_variable: Callable[..., Any]) -> None:
        """Creates state, if the mechanism has any.

        Args:
            variables: The trainable variables, as Keras variables.
            add_variable: `add_variable(shape, dtype, name, initializer)`
                creates a variable that is saved with the optimizer; with
                `saved=False` one that is not, for exact statistics of the data.
        """

    def freeze(self) -> None:
        """From now on the arguments stay as they are: a step is made from them."""
        self._frozen = True

    def __setattr__(self, name: str, value: Any) -> None:
        if self._frozen and name in self.argument_names():
            raise ValueError(
                f"`{name}` must not change once the optimizer is built: training "
                "goes on with the old value while epsilon is computed for the new "
                "one. Make a new optimizer, and call its `continue_from` with the former. "
                f"Received: {name}={value}"
            )
        super().__setattr__(name, value)

    _frozen = False

    #: The public number of rows in a lot, once a step was traced.
    expected_rows: float = 1.0

    def use_lot_size(self, expected_rows: float) -> None:
        """Tells the public number of rows in a lot, while a step is traced."""
        self.expected_rows = expected_rows

    def statistics(self) -> list[tuple[int, ...]]:
        """Shapes of further sums over the rows, such as a count of them.

        `bound` returns them behind the sums of the variables. They are added up over
        batches and replicas and get noise, like these; `refine` takes them out.
        """
        return []

    @property
    def releases_data(self) -> bool:
        """Whether `refine` uses exact sums of the data, as some printed algorithms do.

        Then nothing is private: epsilon is infinite, whatever `claim` says.
        """
        return False

    def noise_deviation(self) -> float | None:
        """Standard deviation of the noise, if it is one number for all coordinates."""
        return None

    @abc.abstractmethod
    def bound(self, gradients: PerExampleGradients) -> list[tf.Tensor]:
        """The sum over rows of gradients that have been bounded one by one.

        For each variable, and then for each of the `statistics`.
        """

    @abc.abstractmethod
    def draw_noise(
        self, shapes: Sequence[Any], seed: tf.Tensor, step: tf.Tensor
    ) -> list[tf.Tensor]:
        """One draw of noise, in the units of the bounded sum.

        Args:
            shapes: The static shape of each variable.
            seed: `int32[2]`, fresh for each release; give each variable its own
                with `tf.random.experimental.stateless_fold_in(seed, index)`.
            step: `int64` scalar, the number of releases before this one.
        """

    @property
    def remembers_noise(self) -> bool:
        """Whether noise depends on that of former releases.

        Then `draw_noise` gets as its `step` the number of releases of the same *run*: it
        begins again with 0, and must not depend on anything before, wherever the ledger
        opens a segment (after a checkpoint was restored, say). And `remember_noise` is
        called.
        """
        return False

    def remember_noise(
        self, noise: list[tf.Tensor], seed: tf.Tensor, step: tf.Tensor
    ) -> None:
        """Keeps what `draw_noise` has returned, together with the release of it.

        What it keeps is as secret as the data: variables with `saved=False`.
        """

    def fresh_deviation(self) -> float | None:
        """Where noise is remembered: its least standard deviation, given all before."""
        return None

    def refine(self, noised: list[tf.Tensor], step: tf.Tensor) -> list[tf.Tensor]:
        """Post-processing of the noised sum. It may update the state."""
        del step
        return noised

    @abc.abstractmethod
    def claim(self, num_parameters: int, examples_per_microbatch: int = 1) -> Claim:
        """What one release costs: proven, and as published (accounting.Claim).

        Must not import TensorFlow when it is called.
        """

    def published_epsilon(self, releases: int) -> float | None:
        """What the paper would print, where it is not the epsilon of an event."""
        del releases
        return None

    def recorded_events(
        self, examples_per_microbatch: int
    ) -> list[tuple[Event, int]] | None:
        """What the executed releases cost, where that is known only afterwards.

        Returns:
            `(event, count)` for all releases so far, or `None` where `claim` says
            it all.
        """
        del examples_per_microbatch
        return None

    @property
    def needs_direction(self) -> bool:
        """Whether every release must be preceded by `release_direction`."""
        return False

    @classmethod
    def argument_names(cls) -> list[str]:
        """Names of the constructor's arguments."""
        parameters = inspect.signature(cls.__init__).parameters
        return [name for name in parameters if name != "self"]

    @classmethod
    def arguments_at(cls, noise_multiplier: float, **arguments: Any) -> dict[str, Any]:
        """The constructor's arguments for this much noise: what calibration varies.

        Args:
            noise_multiplier: Noise relative to the bound of one example. Unless this is
                overridden, the constructor has an argument of that name; an attribute
                of that name tells it.
            **arguments: The other arguments.
        """
        if "noise_multiplier" not in cls.argument_names():
            raise ValueError(
                f"Mechanism `{cls.__name__}` must have an argument `noise_multiplier`, "
                "or a method `arguments_at` of its own: its noise cannot be set."
            )
        return {**arguments, "noise_multiplier": noise_multiplier}

    @classmethod
    def planned_arguments(cls, plan: TrainingPlan) -> dict[str, Any]:
        """Arguments that follow from how long is trained, and on what."""
        del plan
        return {}

    @property
    def cycle(self) -> int:
        """For "cyclic-poisson" sampling: the number of groups that take turns."""
        return 1

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, read from attributes of the same name."""
        return {name: plain(getattr(self, name)) for name in self.argument_names()}
