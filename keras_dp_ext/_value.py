"""Values that are saved by name: noises, bounds, refinements, samplings, events."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

_Family = TypeVar("_Family", bound="Value")


class Value:
    """Base class of a family of frozen dataclasses that serialise themselves.

    A direct subclass is a family. Every class below it is known to `deserialize` by
    its name, so that a saved model or ledger finds it again.
    """

    #: The classes of the family, by name.
    registry: ClassVar[dict[str, Any]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if Value in cls.__bases__:
            cls.registry = {}
        else:
            cls.registry[cls.__name__] = cls

    def get_config(self) -> dict[str, Any]:
        """Plain JSON values from which `from_config` makes an equal value."""
        fields: Any = dataclasses.fields(self)  # type: ignore[arg-type]
        return {field.name: plain(getattr(self, field.name)) for field in fields}

    @classmethod
    def from_config(cls: type[_Family], config: Mapping[str, Any]) -> _Family:
        """The value with this `get_config`."""
        return cls(**config)

    def serialize(self) -> dict[str, Any]:
        """A JSON dictionary that the `get` of this family turns back."""
        return {"class_name": type(self).__name__, "config": self.get_config()}


def deserialize(
    family: type[_Family], identifier: _Family | Mapping[str, Any], argument: str
) -> _Family:
    """The value that `identifier` stands for: itself, or what was serialised.

    Args:
        family: The base class of what is accepted.
        identifier: A value of the family, or a dictionary made by its `serialize`.
        argument: How errors call it.

    Raises:
        ValueError: If `identifier` is neither.
    """
    if isinstance(identifier, family):
        return identifier
    named = isinstance(identifier, Mapping)
    name = identifier.get("class_name") if named else None  # type: ignore[union-attr]
    if name not in family.registry:
        raise ValueError(
            f"Argument `{argument}` must be a {family.__name__} or a serialised one, "
            f"of a class in {sorted(family.registry)}. "
            f"Received: {argument}={identifier}"
        )
    config = identifier.get("config", {})  # type: ignore[union-attr]
    return family.registry[name].from_config(config)


def plain(value: Any) -> Any:
    """What JSON can hold: stages serialise themselves, tuples become lists."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value.serialize() if hasattr(value, "serialize") else value
