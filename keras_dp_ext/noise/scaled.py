"""What all noises have in common: a name and a scale."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from keras_dp_ext._checks import check_positive
from keras_dp_ext._value import Value


class ScaledNoise:
    """A frozen dataclass with a field `scale`, known to its family by its `name`."""

    #: The name used by the command line and by `keras_dp_ext.noise.get`.
    name: ClassVar[str]

    scale: float

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A subclass without a name of its own does not take over that of its base.
        if issubclass(cls, Value) and "name" in vars(cls):
            cls.registry[cls.name] = cls

    def __post_init__(self) -> None:
        check_positive("scale", self.scale)
        object.__setattr__(self, "scale", float(self.scale))

    def with_scale(self: Any, scale: float) -> Any:
        """The same noise at another scale."""
        return dataclasses.replace(self, scale=scale)
