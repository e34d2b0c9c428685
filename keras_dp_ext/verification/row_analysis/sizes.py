"""Sizes of axes, some of which are known only by name: polynomials of unknown sizes.

`[batch, time, 8]` reshaped to `[batch * time, 8]` keeps its examples apart whatever
`batch` and `time` are. To see that, sizes are added, multiplied and compared as
polynomials with integer coefficients. A known size is a Python `int`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any


class Size:
    """A polynomial of unknown sizes; immutable, equal if it has the same terms.

    Args:
        terms: From the unknown sizes that are multiplied (sorted) to their coefficient.
    """

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: dict[tuple, int]):
        self.terms = terms
        self._hash = hash(frozenset(terms.items()))

    @classmethod
    def unknown(cls, *name: Hashable) -> Size:
        """A size of which nothing is known but the name."""
        return cls({(_Unknown(name),): 1})

    def unknowns(self) -> set[_Unknown]:
        return {unknown for monomial in self.terms for unknown in monomial}

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Size) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Any) -> AnySize:
        total = dict(self.terms)
        for monomial, coefficient in _terms(other).items():
            total[monomial] = total.get(monomial, 0) + coefficient
        return _simplest(total)

    __radd__ = __add__

    def __mul__(self, other: Any) -> AnySize:
        total: dict[tuple, int] = {}
        for a, first in self.terms.items():
            for b, second in _terms(other).items():
                monomial = tuple(sorted(a + b))
                total[monomial] = total.get(monomial, 0) + first * second
        return _simplest(total)

    __rmul__ = __mul__

    def __neg__(self) -> AnySize:
        return self * -1

    def __sub__(self, other: Any) -> AnySize:
        return self + other * -1

    def __rsub__(self, other: Any) -> AnySize:
        return self * -1 + other

    def __repr__(self) -> str:
        return " + ".join(
            "*".join(map(str, [coefficient, *monomial]))
            for monomial, coefficient in self.terms.items()
        )


AnySize = int | Size


class _Unknown:
    """One unknown size."""

    __slots__ = ("name", "number")

    def __init__(self, name: tuple):
        self.name = name
        self.number = hash(name)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Unknown) and self.name == other.name

    def __hash__(self) -> int:
        return self.number

    def __lt__(self, other: _Unknown) -> bool:
        return (self.number, repr(self.name)) < (other.number, repr(other.name))

    def __repr__(self) -> str:
        return "/".join(map(str, self.name))


def product(sizes: Iterable[AnySize]) -> AnySize:
    result: AnySize = 1
    for size in sizes:
        result = result * size
    return result


def quotient(dividend: AnySize, divisor: AnySize) -> AnySize | None:
    """`dividend / divisor` if that is a polynomial for sure, otherwise `None`."""
    if dividend == divisor:
        return 1
    if isinstance(divisor, int):
        if divisor == 0:
            return None
        terms = _terms(dividend)
        if any(coefficient % divisor for coefficient in terms.values()):
            return None
        return _simplest({m: c // divisor for m, c in terms.items()})
    if isinstance(dividend, int) or len(divisor.terms) != 1:
        return None
    ((monomial, factor),) = divisor.terms.items()
    result = {}
    for other, coefficient in dividend.terms.items():
        rest = _without(other, monomial)
        if rest is None or coefficient % factor:
            return None
        result[rest] = coefficient // factor
    return _simplest(result)


def _without(monomial: tuple, divisor: tuple) -> tuple | None:
    rest = list(monomial)
    for unknown in divisor:
        if unknown not in rest:
            return None
        rest.remove(unknown)
    return tuple(rest)


def _terms(size: AnySize) -> dict[tuple, int]:
    return size.terms if isinstance(size, Size) else {(): int(size)}


def _simplest(terms: dict[tuple, int]) -> AnySize:
    terms = {monomial: c for monomial, c in terms.items() if c}
    if not terms:
        return 0
    if len(terms) == 1 and () in terms:
        return terms[()]
    return Size(terms)
