"""From any Keras optimizer class and any mechanism to a private optimizer."""

from __future__ import annotations

import inspect
from typing import Any

import keras

from keras_dp_ext._compat import keras_internals
from keras_dp_ext.mechanisms import DPSGD, Composed
from keras_dp_ext.mechanisms.base import Mechanism
from keras_dp_ext.optimizers.for_budget import for_budget
from keras_dp_ext.optimizers.private_optimizer import PrivateOptimizer

_PACKAGE = "keras_dp_ext"

_ARGUMENTS = """
    num_microbatches: Into how many microbatches a batch is cut; each is averaged
        before it is bounded. `None`: one for each example. Microbatches of more
        than one example double the sensitivity, and epsilon accounts for it.
    gradient_accumulation_steps: Batches that make up one lot, with one draw of
        noise and one update at its end.
    expected_batch_size: The public number of examples in a lot, by which the sum
        is divided. Found by itself in `model.fit`.
    noise_seed: For tests only: reproducible noise protects nobody.
    secure_noise: Draws noise from a cryptographic generator and rounds the noised
        sum to a grid, against attacks on floating-point arithmetic. Slower.
    chunk_bytes: How many bytes of per-example gradients, or of the patches and
        products they are made of, are in work at a time. Smaller takes less memory
        and more time; the result is the same. `None`: 4 MB, which stay in a cache.
    physical_batch_size: How many rows of a batch `fit` works on at a time. A greater
        batch is done in parts, with one draw of noise and one update: the result and
        epsilon are those of the whole batch. `None`: all rows at once.
    memory_limit: As `physical_batch_size`, found from the memory that a step may take
        beside what the process holds already: bytes, or "2GB" or "512MiB".
    **kwargs: The arguments of `keras.optimizers.{base}`.
"""

_EXAMPLE = """
Example:

>>> import keras
>>> model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
>>> model.compile({name}(learning_rate=0.01), loss="mse")
"""


def make_private(
    optimizer_class: type[keras.optimizers.Optimizer],
    mechanism: type[Mechanism] | None = None,
    name: str | None = None,
    **arguments: Any,
) -> type:
    """Makes a private version of a Keras optimizer class.

    Args:
        optimizer_class: Any subclass of `keras.optimizers.Optimizer`.
        mechanism: What happens to the per-example gradients. The keywords of its
            constructor become keywords of the optimizer. By default `DPSGD`; with a
            `bound`, `noise` or `refine` among the arguments, `Composed` of these.
        name: Name of the class; by default made of both names, as in `DPLion`.
        **arguments: If given, an optimizer is returned in place of the class.

    Returns:
        A class, or an instance if there are further `arguments`.

    Example:

    >>> import keras, keras_dp_ext as dp
    >>> DPLion = dp.optimizers.make_private(keras.optimizers.Lion)
    >>> optimizer = DPLion(learning_rate=1e-3, l2_norm_clip=1.0, noise_multiplier=1.1)
    >>> optimizer.get_config()["noise_multiplier"]
    1.1

    A mechanism of your own needs no class, if its stages are there:

    >>> optimizer = dp.optimizers.make_private(
    ...     keras.optimizers.SGD,
    ...     bound=dp.bounding.Encoding(),
    ...     noise=dp.noise.StudentT(df=9, scale=1.0),
    ...     refine=dp.refining.KSDenoising(),
    ...     learning_rate=10.0,
    ... )
    """
    if mechanism is None:
        composed = {"bound", "noise", "refine"} & set(arguments)
        mechanism = Composed if composed else DPSGD
    if not (
        inspect.isclass(optimizer_class)
        and issubclass(optimizer_class, keras.optimizers.Optimizer)
    ):
        raise ValueError(
            "Argument `optimizer_class` must be a subclass of "
            f"`keras.optimizers.Optimizer`. Received: {optimizer_class!r}"
        )
    if issubclass(
        optimizer_class, (PrivateOptimizer, keras.optimizers.LossScaleOptimizer)
    ):
        raise ValueError(
            "Argument `optimizer_class` must be a plain optimizer. "
            f"Received: {optimizer_class.__name__}"
        )
    if not (inspect.isclass(mechanism) and issubclass(mechanism, Mechanism)):
        raise ValueError(
            "Argument `mechanism` must be a subclass of "
            f"`keras_dp_ext.mechanisms.Mechanism`. Received: {mechanism!r}"
        )
    name = (
        name or _PREFIXES.get(mechanism, mechanism.__name__) + optimizer_class.__name__
    )
    created = keras.saving.get_custom_objects().get(f"{_PACKAGE}>{name}")
    if (
        not issubclass(created or object, PrivateOptimizer)
        or created.base_class is not optimizer_class
        or created.mechanism_class is not mechanism
    ):
        created = _create(optimizer_class, mechanism, name)
    return created(**arguments) if arguments else created


_PREFIXES: dict[type[Mechanism], str] = {DPSGD: "DP"}


def _create(base: type, mechanism_class: type[Mechanism], name: str) -> type:
    keras_internals.check_optimizer_hooks(base)
    mechanism_parameters = mechanism_class.argument_names()

    class Private(PrivateOptimizer, base):
        def __init__(
            self,
            *positional: Any,
            num_microbatches: int | None = None,
            gradient_accumulation_steps: int | None = None,
            expected_batch_size: int | None = None,
            noise_seed: int | None = None,
            secure_noise: bool = False,
            chunk_bytes: int | None = None,
            physical_batch_size: int | None = None,
            memory_limit: int | str | None = None,
            **kwargs: Any,
        ) -> None:
            _check_arguments(type(self), positional, kwargs)
            kwargs.setdefault("name", type(self).__name__)
            own = {
                key: kwargs.pop(key) for key in mechanism_parameters if key in kwargs
            }
            super().__init__(
                mechanism=mechanism_class(**own),
                num_microbatches=num_microbatches,
                gradient_accumulation_steps=gradient_accumulation_steps,
                expected_batch_size=expected_batch_size,
                noise_seed=noise_seed,
                secure_noise=secure_noise,
                chunk_bytes=chunk_bytes,
                physical_batch_size=physical_batch_size,
                memory_limit=memory_limit,
                **kwargs,
            )

    Private.__name__ = Private.__qualname__ = name
    Private.__module__ = "keras_dp_ext.optimizers"
    Private.__doc__ = _docstring(name, base, mechanism_class)
    Private.base_class = base
    Private.mechanism_class = mechanism_class
    Private.for_budget = classmethod(for_budget)
    Private.__signature__ = _signature(Private, base, mechanism_class)
    return keras.saving.register_keras_serializable(_PACKAGE, name)(Private)


# Arguments that people look for here, and where they belong.
_ELSEWHERE = {
    **dict.fromkeys(
        ("target_epsilon", "epsilon"),
        "`{cls}.for_budget(epsilon=..., ...)` finds the noise for it, and "
        "`PrivacyAccountant(target_epsilon=...)` stops the training in time",
    ),
    **dict.fromkeys(
        ("target_delta", "delta"),
        "pass it as `delta` to `{cls}.for_budget` and to `PrivacyAccountant`",
    ),
    "batch_size": "pass it to the data (`poisson_batches`); the optimizer finds it",
    "max_grad_norm": "it is called `l2_norm_clip` here",
}


def _check_arguments(cls: Any, positional: tuple, keywords: dict[str, Any]) -> None:
    """Errors that say what to write, in place of Python's and Keras' own."""
    if positional:
        raise TypeError(
            f"{cls.__name__} takes keyword arguments only, so that noise and learning "
            f"rate cannot be mistaken for each other: {cls.__name__}(learning_rate=..., "
            "l2_norm_clip=..., noise_multiplier=...). Received: "
            f"{len(positional)} positional argument(s)"
        )
    known = {
        *inspect.signature(cls.base_class).parameters,
        *cls.mechanism_class.argument_names(),
    }
    for name, advice in _ELSEWHERE.items():
        if name in keywords and name not in known:
            raise TypeError(
                f"`{name}` is not an argument of {cls.__name__}: "
                f"{advice.format(cls=cls.__name__)}. Received: {name}={keywords[name]}"
            )


def _signature(private: Any, base: Any, mechanism_class: Any) -> inspect.Signature:
    """What `help` and editors show: mechanism, privacy, then the base's own."""
    parameters: dict[str, inspect.Parameter] = {}
    for function in (mechanism_class.__init__, private.__init__, base.__init__):
        for name, parameter in inspect.signature(function).parameters.items():
            variable = parameter.kind in (
                parameter.VAR_KEYWORD,
                parameter.VAR_POSITIONAL,
            )
            if name != "self" and not variable:
                parameters.setdefault(
                    name, parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
                )
    parameters["name"] = parameters["name"].replace(default=private.__name__)
    return inspect.Signature(list(parameters.values()))


def _docstring(name: str, base: type, mechanism_class: type[Mechanism]) -> str:
    summary, _, rest = inspect.getdoc(mechanism_class).partition("\n")
    head, _, rest = rest.partition("Args:\n")
    rest, mark, references = rest.partition("\nReferences:")
    arguments, _, _ = rest.partition("\nExample:")
    return (
        f"`keras.optimizers.{base.__name__}` made private. {summary}\n{head}"
        f"Args:\n{arguments.rstrip()}{_ARGUMENTS.format(base=base.__name__)}"
        f"{_EXAMPLE.format(name=name)}{mark}{references}"
    )
