"""Drawings of digits: strokes of a pen, made of random numbers alone."""

from __future__ import annotations

import functools

import numpy as np

_SIDE = 28
# What is drawn fits into a square of this size; the rest is a margin.
_BOX = 20.0

# How each digit may be written: one line a way, strokes divided by ";". A stroke is made
# of points "x y" and of arcs "x y width height start stop count" (degrees, clockwise
# from the right), in a box of size 1 with y going down.
_WAYS = """
0: .5 .5 .36 .5 -100 260 16
0: .5 .5 .28 .5 -60 310 16
0: .5 .5 .45 .48 -90 280 16
1: .5 0, .5 .5, .5 1
1: .3 .22, .52 0, .52 .5, .52 1
1: .3 .2, .52 0, .52 1; .25 1, .8 1
1: .5 0, .5 1
2: .48 .28 .36 .28 -170 30 8, .5 .7, .1 1, .5 .96, .95 .98
2: .5 .27 .33 .27 -160 40 8, .5 .75, .25 .95, .1 .88, .25 .78, .5 .9, .7 .98, .98 .92
2: .48 .3 .36 .3 -190 40 8, .1 1; .1 1, .9 1
3: .42 .26 .36 .26 -150 80 8, .42 .74 .42 .26 -80 150 8
3: .1 .05, .8 .03, .4 .4, .42 .7 .42 .3 -80 150 8
3: .45 .25 .32 .25 -160 90 8, .3 .5, .45 .74 .4 .26 -90 140 8
4: .22 0, .12 .5, .5 .55, .85 .5; .78 .02, .74 .5, .7 1
4: .6 0, .08 .62, .08 .62, .95 .62; .66 .1, .66 .5, .66 1
4: .2 .02, .15 .42, .3 .52, .75 .45; .85 0, .8 .5, .78 1
4: .7 1, .7 .5, .72 0, .1 .6, .1 .6, .95 .6
5: .28 .05, .22 .42, .4 .68 .42 .3 -100 140 9; .28 .05, .6 .04, .9 .02
5: .9 .03, .32 .05, .32 .05, .25 .45, .42 .7 .4 .29 -100 150 9
5: .85 0, .4 .06, .25 .4, .55 .48, .72 .68, .5 .95, .1 .95
6: .7 0, .35 .25, .15 .6, .46 .72 .32 .27 170 -170 12
6: .5 0, .25 .35, .15 .7, .48 .75 .33 .24 150 -200 12
6: .85 .05, .45 .12, .2 .5, .5 .7 .34 .3 170 -190 12
7: .05 .08, .5 .06, .92 .04, .92 .04, .6 .5, .4 1
7: .08 .2, .1 .05, .9 .05, .9 .05, .55 .5, .45 1
7: .05 .06, .9 .04, .9 .04, .5 .6, .35 1; .3 .52, .85 .48
7: .1 .1, .5 .02, .85 .1, .75 .5, .65 1
8: .5 .25 .28 .25 -30 -270 10, .5 .75 .34 .25 -90 270 12, .5 .25 .28 .25 90 -40 6
8: .82 .12, .45 .22 .3 .21 -60 -240 7, .5 .5, .5 .77 .32 .23 -40 200 9, .5 .5, .85 .12
8: .5 .24 .27 .24 90 450 12; .5 .74 .33 .26 -90 270 12
9: .45 .28 .33 .28 -20 -340 12, .8 .25, .76 .6, .7 1
9: .45 .28 .34 .26 -30 -350 12, .8 .3, .72 .75, .5 .98, .2 .95
9: .75 .12, .45 .26 .3 .24 -60 -330 10, .78 .1, .74 .55, .74 1
"""


def drawn_digits(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Digits as a hand might write them, and which ones they are.

    Each is written in one of a few ways, then bent, stretched, slanted and drawn with a
    pen of some width, and put into the middle of the image. Nobody's handwriting is in
    them: what is learned from them is public.

    Args:
        count: Number of images.
        seed: Of the random numbers.

    Returns:
        Images `[count, 28, 28, 1]` in [0, 1], bright on dark, and digits `[count]`.

    Example:

    >>> images, digits = drawn_digits(20)
    >>> images.shape, digits[:3]
    ((20, 28, 28, 1), array([0, 1, 2]))
    """
    rng = np.random.default_rng(seed)
    digits = np.arange(count) % 10
    images = [_draw(_bend(_ways(digit), rng), rng) for digit in digits]
    return np.stack(images)[..., np.newaxis].astype(np.float32), digits


@functools.cache
def _ways(digit: int) -> list[list[np.ndarray]]:
    lines = [line.split(":") for line in _WAYS.strip().splitlines()]
    return [
        [
            np.concatenate(
                [_points(*map(float, part.split())) for part in s.split(",")]
            )
            for s in strokes.split(";")
        ]
        for name, strokes in lines
        if int(name) == digit
    ]


def _points(x: float, y: float, *arc: float) -> np.ndarray:
    if not arc:
        return np.array([[x, y]])
    width, height, start, stop, count = arc
    angle = np.radians(np.linspace(start, stop, int(count)))
    return np.stack([x + width * np.cos(angle), y + height * np.sin(angle)], axis=1)


def _bend(ways: list[list[np.ndarray]], rng: np.random.Generator) -> list[np.ndarray]:
    """The strokes of one of the ways, distorted, with the middle of the box at 0."""
    strokes = ways[rng.integers(len(ways))]
    waves = rng.normal(0.0, 0.035, [2, 2, 2])
    phases = rng.uniform(0.0, 2 * np.pi, [2, 2])
    aspect, slant = np.exp(rng.normal(0.0, 0.22)), rng.normal(0.15, 0.22)
    turn = rng.normal(0.0, 0.12)
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    matrix = rotation @ np.array([[0.75 * aspect, -slant], [0.0, 1.0]])
    bent = []
    for stroke in strokes:
        points = stroke + rng.normal(0.0, 0.018, stroke.shape)
        points[[0, -1]] += rng.normal(0.0, 0.05, [2, 2])
        points = _smooth(points)
        x, y = points.T
        moved = points.copy()
        for k in range(2):
            for axis in range(2):
                along_y, along_x = waves[k, axis]
                moved[:, axis] += (
                    along_y * np.sin((k + 1) * np.pi * y + phases[k, axis])
                ) + along_x * np.sin((k + 1) * np.pi * x + phases[axis, k])
        bent.append((moved - 0.5) @ matrix.T)
    return bent


def _smooth(points: np.ndarray) -> np.ndarray:
    """Cuts the corners twice (Chaikin)."""
    for _ in range(2 if len(points) > 2 else 0):
        first, second = points[:-1], points[1:]
        cut = np.stack([0.75 * first + 0.25 * second, 0.25 * first + 0.75 * second], 1)
        points = np.concatenate([points[:1], cut.reshape(-1, 2), points[-1:]])
    return points


def _draw(strokes: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """The strokes, as large as the box and with their mass in the middle."""
    radius = np.clip(rng.normal(1.25, 0.4), 0.55, 2.5)
    points = np.concatenate(strokes)
    low, high = points.min(axis=0), points.max(axis=0)
    scale = (_BOX - 2 * radius * rng.uniform(0.6, 1.0)) / (high - low).max()
    middle = (low + high) / 2
    strokes = [((s - middle) * scale).astype(np.float32) for s in strokes]
    starts = np.concatenate([stroke[:-1] for stroke in strokes])
    ends = np.concatenate([stroke[1:] for stroke in strokes])
    down, across = np.mgrid[:_SIDE, :_SIDE].reshape(2, -1) + 0.5 - _SIDE / 2
    pixels = np.stack([across, down], axis=1).astype(np.float32)
    distance = _distance(pixels, starts, ends)
    image = np.clip((radius - distance) / rng.uniform(0.5, 1.1) + 0.5, 0.0, 1.0)
    centre = image @ pixels / image.sum() + rng.normal(0.0, 0.3, 2)
    right, below = np.round(centre).astype(int)
    return np.roll(image.reshape(_SIDE, _SIDE), (-below, -right), (0, 1))


def _distance(pixels: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """From each pixel to the nearest of the segments."""
    lines = ends - starts
    lengths = np.maximum(np.sum(lines**2, axis=1), 1e-9)
    # |p - a|**2 and (p - a) . d for all pixels p and segments from a along d.
    squares = np.sum(pixels**2, axis=1)[:, np.newaxis] + np.sum(starts**2, axis=1)
    squares -= 2 * pixels @ starts.T
    along = pixels @ lines.T - np.sum(starts * lines, axis=1)
    share = np.clip(along / lengths, 0.0, 1.0)
    least = (squares - 2 * share * along + share**2 * lengths).min(axis=1)
    return np.sqrt(np.maximum(least, 0.0))
