"""Synthetic images: what natural images look like to filters, without a photograph."""

from __future__ import annotations

import numpy as np

_LEAVES = 60


def dead_leaves(
    count: int, height: int, width: int, channels: int, seed: int = 0
) -> np.ndarray:
    """Images of ellipses and rectangles that cover each other.

    Sizes follow a heavy-tailed law, as do those of things in photographs, so that
    edges and scales have much the same statistics. They are made of random numbers
    alone: what is learned from them is public.

    Args:
        count: Number of images.
        height: Rows of pixels.
        width: Columns of pixels.
        channels: 1, or 3 for colours.
        seed: Of the random numbers.

    Returns:
        `[count, height, width, channels]`, in [0, 1].

    Example:

    >>> dead_leaves(2, 28, 28, 1).shape
    (2, 28, 28, 1)

    References:
        Baradad et al., [Learning to see by looking at
        noise](https://arxiv.org/abs/2106.05963), 2021.
    """
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:height, :width].astype(np.float32)
    images = np.zeros([count, height, width, channels], np.float32)
    for image in images:
        base = rng.uniform(0.0, 1.0, channels)
        spread = rng.uniform(0.05, 0.35)
        for _ in range(_LEAVES):
            radius = 1.0 + min(height, width) / 2 * rng.uniform(0.08, 1.0) ** 2
            y, x = rng.uniform(-2.0, height + 2.0), rng.uniform(-2.0, width + 2.0)
            angle, aspect = rng.uniform(0.0, np.pi), rng.uniform(0.3, 1.0)
            along = (columns - x) * np.cos(angle) + (rows - y) * np.sin(angle)
            across = (rows - y) * np.cos(angle) - (columns - x) * np.sin(angle)
            u, v = along / radius, across / (radius * aspect)
            if rng.random() < 0.5:
                inside = u**2 + v**2 < 1
            else:
                inside = np.maximum(np.abs(u), np.abs(v)) < 1
            colour = base + rng.normal(0.0, spread)
            colour = np.clip(colour + rng.normal(0.0, 0.35 * spread, channels), 0, 1)
            shading = rng.normal(0.0, 0.1) * u[inside]
            image[inside] = np.clip(colour + shading[:, np.newaxis], 0, 1)
        image += rng.normal(0.0, rng.uniform(0.0, 0.03), image.shape)
        blur = rng.uniform(0.0, 0.25)
        for axis in (0, 1):
            beside = np.roll(image, 1, axis) + np.roll(image, -1, axis)
            image[:] = (1 - 2 * blur) * image + blur * beside
    return np.clip(images, 0.0, 1.0)
