"""Directions in which drawings of one kind differ, made small: a public projection."""

from __future__ import annotations

import numpy as np
import scipy.linalg


def within_class_whitening(
    features: np.ndarray, labels: np.ndarray, components: int, ridge: float
) -> np.ndarray:
    """A projection that shrinks what differs among examples of the same class.

    How a digit leans, or how wide the pen is, fills most of the features and tells
    nothing about which digit it is. A private model has noise everywhere, and learns
    first where features vary most: there the classes should be. Given features whose
    labels are public, such as drawings, the eigenvector k of the covariance within
    classes is divided by (eigenvalue k / eigenvalue 0 + ridge)**0.5.

    Args:
        features: `[examples, features]`, public.
        labels: Class of each example.
        components: How many of the eigenvectors to keep, those of the largest
            eigenvalues first.
        ridge: Keeps small eigenvalues from being divided by.

    Returns:
        `[features, components]`: what to multiply features by, from the right.

    Example:

    >>> x = np.random.default_rng(0).normal(size=[500, 3]) * [9.0, 3.0, 1.0]
    >>> projection = within_class_whitening(x, np.arange(500) % 2, 3, ridge=0.0)
    >>> np.round((x @ projection).std(axis=0) / 9.0, 1)
    array([1., 1., 1.])
    """
    centred = features - features.mean(axis=0)
    for label in np.unique(labels):
        own = labels == label
        centred[own] -= centred[own].mean(axis=0)
    covariance = centred.T @ centred / len(centred)
    values, vectors = scipy.linalg.eigh(covariance, overwrite_a=True, driver="evd")
    values = np.maximum(values[::-1][:components], 0.0)
    vectors = vectors[:, ::-1][:, :components]
    return vectors / np.sqrt(values / values[0] + ridge)
