"""A line chart as SVG, without a library: a report must open everywhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

_WIDTH, _HEIGHT = 360, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 26, 38


def line_chart(
    x: Sequence[float],
    y: Sequence[float],
    title: str,
    x_label: str,
    from_zero: bool = False,
    line: float | None = None,
) -> str:
    """An SVG element.

    Args:
        x: Positions, increasing whole numbers.
        y: Values; those that are not finite are left out.
        title: Above the chart.
        x_label: Below it.
        from_zero: Whether the vertical axis begins at zero.
        line: A horizontal line, such as a target.
    """
    points = [(a, b) for a, b in zip(x, y, strict=True) if math.isfinite(b)]
    if not points:
        return ""
    ticks_x = _ticks(points[0][0], points[-1][0], least_step=1.0)
    values = [b for _, b in points] + ([] if line is None else [line])
    ticks_y = _ticks(0.0 if from_zero else min(values), max(values))
    low_x, high_x = min(ticks_x[0], points[0][0]), max(ticks_x[-1], points[-1][0])

    def place(a: float, b: float) -> str:
        across = (a - low_x) / (high_x - low_x or 1.0)
        up = (b - ticks_y[0]) / (ticks_y[-1] - ticks_y[0] or 1.0)
        return (
            f"{_LEFT + across * (_WIDTH - _LEFT - _RIGHT):.1f},"
            f"{_HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM):.1f}"
        )

    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">',
        f'<text x="{_LEFT}" y="16" class="title">{escape(title)}</text>',
    ]
    for tick in ticks_y:
        height = place(low_x, tick).split(",")[1]
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{height}" y2="{height}" '
            f'class="grid"/><text x="{_LEFT - 6}" y="{height}" dy="4" '
            f'text-anchor="end">{tick:g}</text>'
        )
    for tick in ticks_x:
        if low_x <= tick <= high_x:
            across = place(tick, ticks_y[0]).split(",")[0]
            parts.append(
                f'<text x="{across}" y="{_HEIGHT - _BOTTOM + 16}" '
                f'text-anchor="middle">{tick:g}</text>'
            )
    parts.append(
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 6}" '
        f'text-anchor="middle">{escape(x_label)}</text>'
    )
    if line is not None:
        ends = f"{place(low_x, line)} {place(high_x, line)}"
        parts.append(f'<polyline points="{ends}" class="target"/>')
    path = " ".join(place(a, b) for a, b in points)
    parts.append(f'<polyline points="{path}" class="curve"/>')
    if len(points) <= 60:
        for a, b in points:
            across, height = place(a, b).split(",")
            parts.append(f'<circle cx="{across}" cy="{height}" r="2.5"/>')
    return "".join([*parts, "</svg>"])


def _ticks(low: float, high: float, least_step: float = 0.0) -> list[float]:
    """Four to eight round numbers that enclose the interval."""
    if high <= low:
        high = low + (abs(low) or 1.0)
    raw = max((high - low) / 5, least_step)
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(m * magnitude for m in (1, 2, 5, 10) if m * magnitude >= raw)
    first, last = math.floor(low / step), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]
