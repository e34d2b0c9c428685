"""Every bound with every noise of the package: a cost that holds, or a clear error."""

import itertools

import keras
import numpy as np
import pytest
import scipy.integrate
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext.accounting import FixedOrder, FullBatch, Ledger, Poisson, rdp
from keras_dp_ext.bounding import Bound
from keras_dp_ext.gradients import MaterializedGradients
from keras_dp_ext.noise import CorrelatedNoise, Noise

# A Dense layer from four inputs to one output.
SHAPES = [(4, 1), (1,)]
NUM_PARAMETERS = 5

BOUNDS = {
    "L2Clip": dp.bounding.L2Clip(0.5),
    "L1Clip": dp.bounding.L1Clip(0.5),
    "Normalized": dp.bounding.Normalized(0.5),
    "TanhFilter": dp.bounding.TanhFilter(output_range=0.4, l2_norm_clip=None),
    "Encoding": dp.bounding.Encoding(dp.bounding.Codebook(size=5)),
    "EllipsoidClip": dp.bounding.EllipsoidClip((0.1, 2.0)),
    "PerLayerClip": dp.bounding.PerLayerClip(0.5, shares=(1.0, 3.0)),
    "QuantileClip": dp.bounding.QuantileClip(0.5, count_weight=1.0),
}
SCALE = 1.5
NOISES = {
    one.__name__: one(scale=SCALE)
    for family in (Noise, CorrelatedNoise)
    for one in family.registry.values()
    if one.__module__.startswith("keras_dp_ext")
}
NOISES["NoiseSequence"] = dp.noise.NoiseSequence(
    (0, 2), (dp.noise.Gaussian(SCALE), dp.noise.StudentT(scale=SCALE))
)
SAMPLINGS = (Poisson(0.1), FullBatch(), FixedOrder(10))
DENOISING = dp.refining.KSDenoising()


def test_all_bounds_of_the_package_are_here():
    named = {
        name
        for name, one in Bound.registry.items()
        if one.__module__.startswith("keras_dp_ext")
        and not getattr(one, "__abstractmethods__", None)
    }
    assert named == set(BOUNDS)


def composed(bound, noise, refine=None):
    """A built optimizer of these stages; `None` where their cost is not known."""
    try:
        optimizer = dp.optimizers.make_private(
            keras.optimizers.SGD,
            bound=BOUNDS[bound],
            noise=NOISES[noise],
            refine=refine,
            learning_rate=0.1,
        )
    except ValueError as error:
        assert "No bound on epsilon is known" in str(error)
        is_correlated = isinstance(NOISES[noise], CorrelatedNoise)
        assert ("Correlated noise fits" in str(error)) is is_correlated
        return None
    optimizer.build([keras.Variable(np.zeros(shape, "float32")) for shape in SHAPES])
    return optimizer


def is_independent(noise):
    return isinstance(NOISES[noise], Noise)


@pytest.mark.parametrize(("bound", "noise"), itertools.product(BOUNDS, NOISES))
def test_a_pair_has_an_epsilon_or_a_clear_error(bound, noise):
    optimizer = composed(bound, noise)
    if noise == "Gaussian" or (bound == "Encoding" and is_independent(noise)):
        assert optimizer is not None
    if optimizer is None:
        return
    for sampling in SAMPLINGS:
        ledger = Ledger()
        ledger.open(0, optimizer.privacy_claim(), sampling)
        try:
            spent = [ledger.epsilon(count, delta=1e-3) for count in (1, 4)]
        except ValueError as error:
            assert "is not proven" in str(error)
            assert not is_independent(noise)
            continue
        assert 0 < spent[0] < np.inf
        assert spent[0] <= spent[1]


@pytest.mark.parametrize(("bound", "noise"), itertools.product(BOUNDS, NOISES))
def test_a_refinement_costs_nothing_or_is_refused(bound, noise):
    plain = composed(bound, noise)
    if plain is None:
        return
    if isinstance(NOISES[noise], CorrelatedNoise):
        with pytest.raises(ValueError, match="`refine` must be None"):
            dp.mechanisms.Composed(BOUNDS[bound], NOISES[noise], DENOISING)
        return
    refined = composed(bound, noise, DENOISING)
    assert refined.privacy_claim() == plain.privacy_claim()


ROWS = [
    1e6 * np.eye(NUM_PARAMETERS)[0],
    -1e6 * np.eye(NUM_PARAMETERS)[-1],
    1e6 * np.array([1.0, -1.0, 1.0, -1.0, 1.0]),
    np.array([0.3, 0.0, 1e-3, -2.0, 0.1]),
]


def what_a_row_adds(optimizer, row):
    """The bounded row, behind it the mechanism's statistics: all that gets noise."""
    pieces = np.split(row.astype("float32"), [4])
    gradients = MaterializedGradients(
        [tf.reshape(p, [1, *s]) for p, s in zip(pieces, SHAPES, strict=True)]
    )
    sums = optimizer.mechanism.bound(gradients)
    return np.concatenate([np.ravel(value) for value in sums]).astype("float64")


def divergence(noise, shifts, order):
    """Of shifted noise from noise, by quadrature: nothing of the accountant is used."""
    total = 0.0
    for shift in shifts[np.abs(shifts) > 1e-9]:

        def integrand(x, shift=shift):
            ratio = noise.log_density(x - shift) - noise.log_density(x)
            return np.exp(order * ratio + noise.log_density(x))

        edges = [-np.inf, min(0.0, shift), max(0.0, shift), np.inf]
        integral = sum(
            scipy.integrate.quad(integrand, low, high, limit=200)[0]
            for low, high in itertools.pairwise(edges)
        )
        total += np.log(integral) / (order - 1)
    return total


@pytest.mark.parametrize(
    ("bound", "noise"), itertools.product(BOUNDS, filter(is_independent, NOISES))
)
def test_no_row_moves_the_release_further_than_its_claim(bound, noise):
    """What the bound really lets through, against what the pair is said to cost."""
    optimizer = composed(bound, noise)
    if optimizer is None:
        return
    event, orders = optimizer.privacy_claim().proven, np.array([2, 3, 6])
    claimed = rdp.rdp_per_release(event, FullBatch(), orders)
    for row in ROWS:
        shifts = what_a_row_adds(optimizer, row)
        for order, most in zip(orders, claimed, strict=True):
            assert divergence(NOISES[noise], shifts, order) <= most * (1 + 1e-6)
