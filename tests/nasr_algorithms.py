"""An independent reading of Nasr et al., Algorithms 1 and 2, in plain NumPy."""

import numpy as np


def algorithm_2(gradient, vectors):
    """Encodes one flat gradient; `vectors` are sorted from the greatest down."""
    order = np.argsort(-np.abs(gradient), kind="stable")
    ranked = np.abs(gradient)[order]
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(ranked)
    psi = vectors[np.argmax(vectors @ ranked / np.maximum(lengths, 1e-300))]
    encoded = np.zeros_like(gradient)
    for t, i in enumerate(order):
        encoded[i] = min(psi[t], max(gradient[i], -psi[t]))
    return encoded


def algorithm_1_step(gradients, vectors, noise, distance):
    """The denoised sum of encoded gradients, before the learning rate."""
    privatised = sum(algorithm_2(row, vectors) for row in gradients) + noise
    return distance(privatised) * privatised
