"""Each mechanism on the command line: the options that it takes, and its audits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from keras_dp_ext._names import CORRELATED_MECHANISMS, NOISES
from keras_dp_ext._own_code import is_own

if TYPE_CHECKING:
    from keras_dp_ext.cli._planned_training import PlannedTraining
    from keras_dp_ext.mechanisms.base import Mechanism

#: The default of `--bands`.
DEFAULT_BANDS = 16


class MechanismOptions:
    """A mechanism on the command line. Most need no more than this.

    Args:
        name: A name in `keras_dp_ext._names.MECHANISMS`, or `module:Class`.
    """

    #: The options that apply to this mechanism, and not to all others.
    options: tuple[str, ...] = ("noise_multiplier",)

    #: Whether `--guarantee published` runs something else than what is proven.
    has_published_form = False

    def __init__(self, name: str):
        self.name = name

    @property
    def mechanism_class(self) -> type[Any]:
        """The class, imported now."""
        from keras_dp_ext.mechanisms import describe

        return describe.mechanism_class(self.name)

    def needs_parameters(self, guarantee: str) -> bool:
        """Whether the claim depends on the number of parameters."""
        del guarantee
        return is_own(self.name)

    def cycle(self, given: Any) -> int:
        """Groups of cyclic Poisson sampling: as many as the noise has bands.

        Args:
            given: The parsed arguments.
        """
        del given
        own = self.mechanism_class
        return own(**own.arguments_at(1.0)).cycle

    def arguments(
        self, training: PlannedTraining, scale: float | None
    ) -> dict[str, Any]:
        """The arguments of its constructor.

        Args:
            training: The training that it is for.
            scale: The noise to calibrate with; by default the one that is given.
        """
        given = training.arguments
        options = {
            name: getattr(given, name)
            for name in self.options
            if name != "noise_multiplier" and getattr(given, name) is not None
        }
        noise_multiplier = training.noise_multiplier(scale)
        return self.mechanism_class.arguments_at(noise_multiplier, **options)

    def audits(
        self, noise_multiplier: float, delta: float
    ) -> Iterator[tuple[str, Mechanism]]:
        """What is audited, each under the name that it has in the table."""
        del delta
        yield self.name, self._with_noise(noise_multiplier)

    def _with_noise(self, noise_multiplier: float, **arguments: Any) -> Mechanism:
        own = self.mechanism_class
        return own(**own.arguments_at(noise_multiplier, **arguments))


class _Quantile(MechanismOptions):
    def audits(
        self, noise_multiplier: float, delta: float
    ) -> Iterator[tuple[str, Mechanism]]:
        del delta
        # With much of the budget on the count, a count that leaks would show.
        yield self.name, self._with_noise(noise_multiplier, count_noise=0.8)


class _Encoding(MechanismOptions):
    options = ("noise", "scale", "df", "codebook_size")

    def needs_parameters(self, guarantee: str) -> bool:
        return True

    def arguments(
        self, training: PlannedTraining, scale: float | None
    ) -> dict[str, Any]:
        from keras_dp_ext import noise as noises
        from keras_dp_ext.bounding.codebook import Codebook

        given = training.arguments
        name = given.noise or "student-t"
        config: dict[str, Any] = {}
        if given.df is not None:
            if name != "student-t":
                raise ValueError("Argument `--df` applies to `--noise student-t` only.")
            config["df"] = given.df
        config["scale"] = scale or (1.0 if given.scale is None else given.scale)
        codebook = Codebook(size=given.codebook_size or 1000)
        noise = noises.get({"class_name": name, "config": config})
        return {"codebook": codebook, "noise": noise}

    def audits(
        self, noise_multiplier: float, delta: float
    ) -> Iterator[tuple[str, Mechanism]]:
        from keras_dp_ext import noise as noises

        for name in NOISES:
            scaled = noises.get(name).with_scale(noise_multiplier)
            yield f"{self.name}, {name}", self.mechanism_class(noise=scaled)


class _Tanh(MechanismOptions):
    options = ("noise_multiplier", "output_range")
    has_published_form = True

    def needs_parameters(self, guarantee: str) -> bool:
        return guarantee == "published"

    def arguments(
        self, training: PlannedTraining, scale: float | None
    ) -> dict[str, Any]:
        arguments = super().arguments(training, scale)
        return {**arguments, "guarantee": training.arguments.guarantee}

    def audits(
        self, noise_multiplier: float, delta: float
    ) -> Iterator[tuple[str, Mechanism]]:
        yield from super().audits(noise_multiplier, delta)
        yield (
            f"{self.name}, as published",
            self._with_noise(noise_multiplier, guarantee="published"),
        )


class _Directional(MechanismOptions):
    options = ("noise_multiplier", "direction", "budget_epsilon", "split")
    has_published_form = True

    def arguments(
        self, training: PlannedTraining, scale: float | None
    ) -> dict[str, Any]:
        given = training.arguments
        direction = given.direction or "gradient"
        if given.guarantee == "proven":
            return {
                "noise_multiplier": training.noise_multiplier(scale),
                "direction": direction,
            }
        if scale is not None:
            raise ValueError(
                "Published directional noise follows from its own budget; there is "
                "nothing to calibrate."
            )
        if given.budget_epsilon is None or not training.steps:
            raise ValueError(
                "Published directional noise follows from a total budget: pass "
                "`--budget-epsilon`, and `--epochs` or `--steps`."
            )
        return {
            "guarantee": "published",
            "direction": direction,
            "published_budget": {
                "epsilon": given.budget_epsilon,
                "delta": training.delta,
                "sampling_rate": given.batch_size / given.num_examples,
                "steps": training.steps,
                "split": 0.125 if given.split is None else given.split,
            },
        }

    def audits(
        self, noise_multiplier: float, delta: float
    ) -> Iterator[tuple[str, Mechanism]]:
        from keras_dp_ext.analysis import PublishedBudget

        yield from super().audits(noise_multiplier, delta)
        # One release of the whole data set, planned for an epsilon of 1.
        budget = PublishedBudget(epsilon=1.0, delta=delta, sampling_rate=1.0, steps=1)
        yield (
            f"{self.name}, as published",
            self.mechanism_class(guarantee="published", published_budget=budget),
        )


class _Correlated(MechanismOptions):
    def arguments(
        self, training: PlannedTraining, scale: float | None
    ) -> dict[str, Any]:
        planned: dict[str, Any] = {}
        if training.steps:
            planned = self.mechanism_class.planned_arguments(training.plan)
        return {**planned, **super().arguments(training, scale)}

    def audits(
        self, noise_multiplier: float, delta: float
    ) -> Iterator[tuple[str, Mechanism]]:
        for label, mechanism in super().audits(noise_multiplier, delta):
            yield f"{label}, one run", mechanism


class _BandMF(_Correlated):
    options = ("noise_multiplier", "bands")

    def cycle(self, given: Any) -> int:
        return given.bands or DEFAULT_BANDS

    def arguments(
        self, training: PlannedTraining, scale: float | None
    ) -> dict[str, Any]:
        arguments = super().arguments(training, scale)
        return {**arguments, "bands": self.cycle(training.arguments)}


class _DPFTRL(_Correlated):
    options = ("noise_multiplier", "restart_every")


class _BandInv(_Correlated):
    options = ("noise_multiplier", "bands")


class _BLT(_Correlated):
    options = ("noise_multiplier", "buffers")

    def arguments(
        self, training: PlannedTraining, scale: float | None
    ) -> dict[str, Any]:
        arguments = super().arguments(training, scale)
        return {**arguments, "separation": training.steps_per_epoch}


# Those that need more than `MechanismOptions`.
_SPECIAL: dict[str, type[MechanismOptions]] = {
    "quantile": _Quantile,
    "encoding": _Encoding,
    "tanh": _Tanh,
    "directional": _Directional,
    "bandmf": _BandMF,
    "dpftrl": _DPFTRL,
    "blt": _BLT,
    "bandinv": _BandInv,
}

#: All options that apply to some mechanisms only.
ALL_OPTIONS = frozenset(MechanismOptions.options).union(
    *(one.options for one in _SPECIAL.values())
)

#: The mechanisms that also run as printed.
WITH_PUBLISHED_FORM = tuple(
    name for name, one in _SPECIAL.items() if one.has_published_form
)


def options_of(name: str) -> MechanismOptions:
    """The options of a mechanism: of a known one, or of `module:Class`."""
    general = _Correlated if name in CORRELATED_MECHANISMS else MechanismOptions
    return _SPECIAL.get(name, general)(name)
