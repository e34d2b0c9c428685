"""Drawings of garments, shoes and bags: filled polygons, made of random numbers alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

_SIDE = 28
# Points at which a pixel is tested, along each axis.
_FINE = 2

Points = Sequence[tuple[float, float]] | np.ndarray


def drawn_garments(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Garments as a shop might show them, and which of ten kinds they are.

    The kinds are those of Fashion-MNIST, in its order, from what their names say:
    T-shirt, trousers, pullover, dress, coat, sandal, shirt, sneaker, bag, ankle boot.
    No photograph is in them: what is learned from them is public.

    Args:
        count: Number of images.
        seed: Of the random numbers.

    Returns:
        Images `[count, 28, 28, 1]` in [0, 1], bright on dark, and kinds `[count]`.

    Example:

    >>> images, kinds = drawn_garments(20)
    >>> images.shape, kinds[:3]
    ((20, 28, 28, 1), array([0, 1, 2]))
    """
    rng = np.random.default_rng(seed)
    kinds = np.arange(count) % 10
    images = [_draw(int(kind), rng) for kind in kinds]
    return np.stack(images)[..., np.newaxis].astype(np.float32), kinds


class _Canvas:
    """An image on which polygons of some cloth are laid, one above the other."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.u = rng.uniform
        self.image = np.zeros([_SIDE, _SIDE])
        self.cloth = _cloth(rng)
        self.x = _SIDE / 2 + rng.normal(0.0, 0.3)

    def chance(self, probability: float) -> bool:
        return self.u() < probability

    def shade(self, least: float, most: float) -> np.ndarray:
        """The cloth, darker or brighter."""
        return np.clip(self.cloth * self.u(least, most), 0.0, 1.2)

    def lay(
        self,
        points: Points,
        cloth: np.ndarray | float | None = None,
        jitter: float = 0.25,
    ) -> None:
        corners = np.array(points) + self.rng.normal(0.0, jitter, [len(points), 2])
        covered = _coverage(corners)
        cloth = self.cloth if cloth is None else cloth
        self.image = self.image * (1.0 - covered) + covered * cloth

    def band(self, half: float, top: float, bottom: float, *shade: float) -> None:
        """A band across the middle."""
        left, right = self.x - half, self.x + half
        corners = [(left, top), (right, top), (right, bottom), (left, bottom)]
        self.lay(corners, self.shade(*shade))


def _draw(kind: int, rng: np.random.Generator) -> np.ndarray:
    canvas = _Canvas(rng)
    if kind == 1:
        _trousers(canvas)
    elif kind == 5:
        _sandal(canvas)
    elif kind == 7:
        _sneaker(canvas)
    elif kind == 8:
        _bag(canvas)
    elif kind == 9:
        _boot(canvas)
    else:
        _top(canvas, kind)
    image = np.clip(canvas.image * rng.uniform(0.85, 1.15), 0.0, 1.0)
    blur = rng.uniform(0.0, 0.15)
    for axis in (0, 1):
        beside = np.roll(image, 1, axis) + np.roll(image, -1, axis)
        image = (1 - 2 * blur) * image + blur * beside
    return image


def _cloth(rng: np.random.Generator) -> np.ndarray:
    """Plain, striped, rough or with a patch; lit unevenly."""
    y, x = np.mgrid[:_SIDE, :_SIDE].astype(float)
    cloth = np.full([_SIDE, _SIDE], rng.uniform(0.2, 1.0) ** 0.7)
    kind = rng.random()
    if kind < 0.2:
        angle = rng.choice([0.0, np.pi / 2, rng.uniform(0.0, np.pi)], p=[0.4, 0.4, 0.2])
        across = x * np.cos(angle) + y * np.sin(angle)
        wave = np.sin(2 * np.pi * (across / rng.uniform(2.0, 9.0) + rng.random()))
        wave = np.sign(wave) if rng.random() < 0.5 else wave
        cloth += rng.uniform(0.05, 0.4) * wave
    elif kind < 0.35:
        rough = rng.normal(size=cloth.shape)
        for _ in range(rng.integers(0, 3)):
            shifted = [np.roll(rough, by, axis) for axis in (0, 1) for by in (1, -1)]
            rough = (rough + sum(shifted)) / 2.2
        cloth += rng.uniform(0.05, 0.25) * rough
    elif kind < 0.45:
        left, top = rng.uniform(9.0, 14.0), rng.uniform(7.0, 13.0)
        wide, high = rng.uniform(2.0, 7.0, 2)
        patch = (x > left) & (x < left + wide) & (y > top) & (y < top + high)
        cloth[patch] = rng.random()
    elif kind < 0.52:
        cloth[y > rng.uniform(8.0, 20.0)] = rng.uniform(0.2, 1.0)
    right, down = (x - _SIDE / 2) / _SIDE, (y - _SIDE / 2) / _SIDE
    cloth += rng.normal(0.0, 0.24) * right + rng.normal(0.0, 0.24) * down
    cloth += rng.normal(0.0, 0.06) * np.cos(_SIDE * right / rng.uniform(2.0, 5.0))
    return cloth + rng.normal(0.0, rng.uniform(0.0, 0.06), cloth.shape)


def _coverage(corners: np.ndarray) -> np.ndarray:
    """How much of each pixel is inside a polygon."""
    fine = _SIDE * _FINE
    y, x = (np.mgrid[:fine, :fine].astype(np.float32) + 0.5) / _FINE
    inside = np.zeros([fine, fine], bool)
    for (x0, y0), (x1, y1) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        if y0 != y1:
            beside = x < (x1 - x0) * (y - y0) / (y1 - y0) + x0
            inside ^= ((y0 > y) != (y1 > y)) & beside
    return inside.reshape(_SIDE, _FINE, _SIDE, _FINE).mean(axis=(1, 3))


def _top(canvas: _Canvas, kind: int) -> None:
    """T-shirt (0), pullover (2), dress (3), coat (4) or shirt (6)."""
    u, x, dress = canvas.u, canvas.x, kind == 3
    top = u(0.5, 2.5)
    bottom = u(22.0, 26.0) if kind == 0 and canvas.chance(0.2) else u(25.5, 28.0)
    shoulder = u(2.5, 5.5) if dress else u(4.5, 7.0)
    chest = shoulder * (u(0.8, 1.1) if dress else u(0.85, 1.1))
    hem = min(chest * (u(0.9, 2.6) if dress else u(0.85, 1.2)), 10.0)
    waist = chest * (u(0.6, 1.0) if dress else u(0.75, 1.0))
    neck, drop = u(1.2, 3.2), u(0.3, 3.0)
    # The share without sleeves, and that with short ones.
    without, short = {0: (0.12, 0.88), 3: (0.65, 0.175), 6: (0.0, 0.35)}.get(
        kind, (0.0, 0.0)
    )
    drawn = u()
    if drawn >= without:
        _sleeves(canvas, drawn < without + short, top, shoulder, chest)
    half = [(neck, top), (shoulder, top + u(0.8, 2.2)), (chest, top + u(5.0, 8.0))]
    half += [(waist, u(12.0, 17.0)), (hem, bottom)]
    mirrored = [(-right, down) for right, down in half[::-1]]
    canvas.lay([(x + right, down) for right, down in half + mirrored])
    if canvas.chance(0.85):
        inside = 0.0 if canvas.chance(0.7) else 0.4 * canvas.cloth
        corners = [(-neck, top - 1), (neck, top - 1), (0.7 * neck, top + 0.6 * drop)]
        corners += [(0.0, top + drop), (-0.7 * neck, top + 0.6 * drop)]
        canvas.lay([(x + right, down) for right, down in corners], inside, 0.1)
    if canvas.chance({4: 1.0, 6: 0.6, 2: 0.08}.get(kind, 0.0)):  # It opens in front.
        dark = canvas.chance(0.75)
        seam = canvas.shade(0.3, 0.85) if dark else np.clip(canvas.cloth + 0.25, 0, 1)
        wide, lean = u(0.25, 0.8), canvas.rng.normal(0.0, 0.4)
        corners = [(x - wide, top + drop), (x + wide, top + drop)]
        corners += [(x + wide + lean, bottom), (x - wide + lean, bottom)]
        canvas.lay(corners, seam, 0.05)
    if kind in (4, 6) and canvas.chance(0.6):  # A collar.
        for side in (1, -1):
            corners = [(neck, top), (neck + 1.5, top + 2.5), (0.5, top + drop + 1)]
            corners = [(x + side * right, down) for right, down in corners]
            canvas.lay(corners, canvas.shade(0.6, 1.3), 0.2)
    if dress and canvas.chance(0.3):  # A belt.
        canvas.band(waist, 13.0, 14.2, 0.4, 1.3)


def _sleeves(
    canvas: _Canvas, short: bool, top: float, shoulder: float, chest: float
) -> None:
    u = canvas.u
    cloth = canvas.shade(0.75, 1.1)
    away = shoulder + (u(2.5, 5.0) if short else u(1.5, 4.5))
    end = top + (u(5.5, 10.0) if short else u(17.0, 25.0))
    wide, away = (u(2.5, 4.0) if short else u(1.6, 3.0)), min(away, 12.8)
    for side in (1, -1):
        half = [(shoulder - 1, top + 0.6), (shoulder + 0.8, top + 1.8)]
        half += [(away, end - u(0.0, 1.5)), (away - wide, end)]
        half += [(chest - 0.6, top + u(6.0, 9.0))]
        canvas.lay([(canvas.x + side * right, down) for right, down in half], cloth)


def _trousers(canvas: _Canvas) -> None:
    u = canvas.u
    wide, top, bottom, crotch = u(3.0, 5.5), u(0.2, 1.5), u(26.0, 28.0), u(8.0, 13.0)
    leg, apart = u(1.9, 3.5) / 2, u(2.0, 6.0)
    for side in (1, -1):
        half = [(-0.1, top), (0.85 * wide, top), (wide, crotch)]
        half += [(apart + leg, bottom), (apart - leg, bottom), (u(0.0, 0.7), crotch)]
        canvas.lay([(canvas.x + side * right, down) for right, down in half])
    if canvas.chance(0.4):
        canvas.band(0.85 * wide, top, top + 1.2, 0.5, 1.3)


def _sneaker(canvas: _Canvas) -> None:
    """Shoes point to the left."""
    u = canvas.u
    ground, left, right = u(19.0, 23.5), u(0.2, 1.5), u(26.5, 27.8)
    high, toe, tongue = u(6.0, 9.5), u(2.5, 4.5), u(17.0, 20.5)
    corners = [(left, 0.0), (left + 0.3, 0.7 * toe), (left + 4, toe)]
    corners += [(u(9.0, 12.5), toe + u(0.5, 2.0))]
    corners += [(tongue - u(2.5, 5.0), high * u(0.75, 1.0))]
    corners += [(tongue, high * u(0.85, 1.0)), (u(21.5, 23.5), high * u(0.6, 0.8))]
    corners += [(u(25.0, 26.5), high * u(0.85, 1.05)), (right, high / 2), (right, 0.0)]
    canvas.lay([(across, ground - up) for across, up in corners])
    for _ in range(canvas.rng.integers(0, 4)):
        start, wide, lean = u(9.0, 20.0), u(0.5, 2.0), u(-3.0, 3.0)
        corners = [(start, 1.0), (start + wide, 1.0), (start + lean, 0.8 * high)]
        corners += [(start - abs(lean), 0.8 * high)]
        shade = canvas.shade(0.3, 1.7)
        canvas.lay([(across, ground - up) for across, up in corners], shade)


def _boot(canvas: _Canvas) -> None:
    u = canvas.u
    ground, left, right = u(24.0, 27.5), u(0.2, 1.5), u(26.5, 27.8)
    high, shaft, toe = u(15.0, 25.0), u(12.0, 17.0), u(4.0, 6.5)
    top = max(ground - high, 0.3)
    corners = [
        (left, ground),
        (left + 0.3, ground - 0.7 * toe),
        (left + 4, ground - toe),
    ]
    corners += [(shaft - 1, ground - toe - u(2.0, 4.0))]
    corners += [
        (shaft + u(-1.0, 1.0), ground - 0.6 * high),
        (shaft + u(-1.5, 1.5), top),
    ]
    corners += [(right - u(0.0, 2.0), top + u(-0.3, 0.8))]
    corners += [(right - u(0.0, 1.5), ground - 0.5 * high), (right, ground - toe)]
    canvas.lay([*corners, (right, ground)])
    if canvas.chance(0.5):
        low = top + u(2.5, 5.0)
        corners = [(shaft, top + 2), (right, top + 2), (right, low), (shaft, low)]
        canvas.lay(corners, canvas.shade(0.4, 1.5))
    if canvas.chance(0.4):  # The arch before a heel.
        start, end, sole = u(11.0, 16.0), u(4.0, 7.0), u(0.8, 2.2) + 0.5
        corners = [(start, ground - 0.2), (start + end, ground - 0.2)]
        corners += [(start + end, ground - sole), (start, ground - sole)]
        canvas.lay(corners, 0.0)


def _sandal(canvas: _Canvas) -> None:
    u = canvas.u
    ground, left, right = u(18.8, 23.3), u(0.2, 1.5), u(26.5, 27.8)
    heel = u(0.0, 8.0) if canvas.chance(0.55) else u(0.0, 1.5)
    thick = u(1.0, 3.0)
    corners = [(left, 0.0), (left, thick), (u(9.0, 13.0), thick + 0.15 * heel)]
    corners += [(right, thick + heel), (right, heel), (u(13.0, 18.0), 0.45 * heel)]
    canvas.lay(
        [(across, ground - up) for across, up in corners], canvas.shade(0.6, 1.2)
    )
    if heel > 2.5:
        corners = [(right - u(1.0, 4.0), heel + 0.5), (right, heel + 0.5)]
        corners += [(right - 0.2, -0.3), (right - u(0.8, 2.0), -0.3)]
        canvas.lay([(across, ground - up) for across, up in corners])
    for _ in range(canvas.rng.integers(1, 6)):  # Straps, from the sole to the sole.
        start, end, high, wide = u(1, 24), u(3, 27), u(3, 9), u(0.5, 2.0)
        middle = (start + end) / 2

        def sole(at: float) -> float:
            return ground - thick - heel * max(0.0, (at - 10) / 17)

        top = sole(middle) - high
        corners = [
            (start, sole(start)),
            (middle - wide, top),
            (middle + wide, top - 0.3),
        ]
        corners += [(end + wide, sole(end)), (end - wide / 2, sole(end))]
        corners += [(middle + 0.2, top + wide), (start + wide, sole(start) + 0.3)]
        canvas.lay(corners, canvas.shade(0.6, 1.3))


def _bag(canvas: _Canvas) -> None:
    u, x = canvas.u, canvas.x
    top, bottom, above, below = u(6, 13), u(22, 27.5), u(8.5, 13), u(9, 13.5)
    if canvas.chance(0.75):  # A handle.
        wide, high, thick = u(3.0, 8.0), top - u(1.0, top - 0.3), u(0.5, 1.3)
        angle = np.linspace(0.0, np.pi, 12)
        across, up = np.cos(angle), np.sin(angle)
        outer = [x + wide * across, top + 0.5 - high * up ** u(0.4, 1.0)]
        inner = [x + (wide - thick) * across]
        inner += [top + 0.5 - max(high - thick, 0.0) * up]
        corners = np.concatenate([np.stack(outer, 1), np.stack(inner, 1)[::-1]])
        canvas.lay(corners, canvas.shade(0.5, 1.2), 0.1)
    corners = [(x - above, top), (x + above, top), (x + below, bottom)]
    canvas.lay([*corners, (x - below, bottom)], jitter=0.6)
    if canvas.chance(0.6):
        edge = top + u(0.5, 8.0)
        canvas.band(above, edge, edge + u(0.4, 1.5), 0.3, 1.5)
    if canvas.chance(0.4):  # A buckle.
        left, upper = x + canvas.rng.normal(0.0, 2.0) - 1.5, u(top + 2, bottom - 3)
        right, lower = left + 3.0, upper + 2.5
        corners = [(left, upper), (right, upper), (right, lower), (left, lower)]
        canvas.lay(corners, u(0.1, 1.0))
