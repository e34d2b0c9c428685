"""Writes the stubs by which editors know the optimizers, which are made at run time.

python -m tools.stubs        (or: make stubs)
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import keras

from keras_dp_ext import optimizers
from keras_dp_ext.optimizers.for_budget import for_budget

PATH = Path(optimizers.__file__).with_suffix(".pyi")

_HEAD = '''"""Made by `python -m tools.stubs` with Keras {version}; do not edit."""

from typing import Any

import keras
from typing_extensions import Self

from keras_dp_ext.optimizers.adam_bc import AdamBC as AdamBC
from keras_dp_ext.optimizers.make_private import make_private as make_private
from keras_dp_ext.optimizers.private_optimizer import (
    PrivateOptimizer as PrivateOptimizer,
)
from keras_dp_ext.optimizers.tanh_filtered_sgd import (
    TanhFilteredSGD as TanhFilteredSGD,
)
'''

_TYPES = {
    "learning_rate": "float | keras.optimizers.schedules.LearningRateSchedule",
    "num_microbatches": "int | None",
    "gradient_accumulation_steps": "int | None",
    "expected_batch_size": "int | None",
    "noise_seed": "int | None",
    "secure_noise": "bool",
    "chunk_bytes": "int | None",
    "physical_batch_size": "int | None",
    "memory_limit": "int | str | None",
    "name": "str",
}


def classes() -> dict[str, type]:
    """The optimizers that are made at run time, by name."""
    found = {name: getattr(optimizers, name) for name in optimizers.__all__}
    return {
        name: cls
        for name, cls in found.items()
        if inspect.isclass(cls) and hasattr(cls, "for_budget")
    }


def text() -> str:
    """The stub file."""
    return _HEAD.format(version=keras.__version__) + "".join(
        map(_class, classes().values())
    )


def _class(cls: type) -> str:
    parameters = _ordered(inspect.signature(cls).parameters.values())
    budget = list(inspect.signature(for_budget).parameters.values())[1:-1]
    own = [p for p in parameters if p.name not in ("epsilon", "noise_multiplier")]
    taken = {p.name for p in budget}
    budget += [p for p in own if p.name not in taken]
    return (
        f"\nclass {cls.__name__}(PrivateOptimizer, "
        f"{_base(cls.base_class)}):\n"
        f"{_docstring(cls, indent=4)}\n"
        f"    def __init__(\n        self,\n        *,\n{_lines(parameters)}    ) -> None: ...\n"
        "    @classmethod\n"
        f"    def for_budget(\n        cls,\n        *,\n{_lines(budget)}"
        "        **arguments: Any,\n    ) -> Self:\n"
        f"{_docstring(for_budget, indent=8)}"
    )


def _docstring(documented, indent: int) -> str:
    """The whole docstring: editors and the site's API reference show it."""
    text = inspect.getdoc(documented)
    # The stub names them one by one.
    text = re.sub(
        r"\n +\*\*kwargs: The arguments of (.*)",
        r"\n\nAll other arguments are those of \1",
        text,
    )
    lines = f'"""{text}\n"""'.splitlines()
    return "".join(" " * indent * bool(line) + line + "\n" for line in lines)


def _base(base: type) -> str:
    is_own = base.__module__.startswith("keras_dp_ext")
    return base.__name__ if is_own else f"keras.optimizers.{base.__name__}"


def _ordered(parameters) -> list[inspect.Parameter]:
    """What everybody sets comes first."""
    first = ("learning_rate", "l2_norm_clip", "noise_multiplier")
    parameters = list(parameters)
    return sorted(
        parameters,
        key=lambda p: first.index(p.name) if p.name in first else len(first),
    )


def _lines(parameters) -> str:
    return "".join(f"        {_parameter(p)},\n" for p in parameters)


def _parameter(parameter: inspect.Parameter) -> str:
    if isinstance(parameter.annotation, str):
        kind = parameter.annotation
        known = {"float", "int", "str", "bool", "None"}
        if not set(kind.replace("|", " ").split()) <= known:
            kind = "Any"
    else:
        kind = _TYPES.get(parameter.name, "Any")
    if parameter.default is parameter.empty:
        return f"{parameter.name}: {kind}"
    simple = isinstance(parameter.default, (int, float, str, bool, type(None)))
    default = repr(parameter.default) if simple else "..."
    return f"{parameter.name}: {kind} = {default}".replace("'", '"')


if __name__ == "__main__":
    PATH.write_text(text())
