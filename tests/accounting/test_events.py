"""Events, claims and samplings: values that survive JSON and refuse nonsense."""

import dataclasses
import json
import math

import pytest

from keras_dp_ext import noise as noises
from keras_dp_ext.accounting import (
    Claim,
    CodebookRelease,
    ComposedRelease,
    FullBatch,
    FullBatchRelease,
    GaussianRelease,
    NoiseRelease,
    Poisson,
    Profile,
    Shuffled,
    WithReplacement,
    epsilon,
    events,
    rdp_per_release,
    sampling,
)
from keras_dp_ext.bounding.codebook import Codebook

EVENTS = [
    GaussianRelease(1.1),
    GaussianRelease(0.0),
    GaussianRelease(math.inf),
    NoiseRelease(noises.StudentT(5, 2.0), [[0.1, -0.5, 0.0]], replaced=True),
    CodebookRelease(noises.Laplace(0.5), Codebook(size=3), 100),
    FullBatchRelease(GaussianRelease(3.0)),
    ComposedRelease((FullBatchRelease(GaussianRelease(3.0)), GaussianRelease(1.0))),
]
SAMPLINGS = [
    Poisson(0.01, overflow_delta=1e-12),
    Shuffled(100, 0.01),
    WithReplacement(10, 1000),
    FullBatch(),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda e: type(e).__name__)
def test_events_survive_json(event):
    assert events.get(json.loads(json.dumps(event.serialize()))) == event
    claim = Claim(event, published=GaussianRelease(2.0), caveat="because")
    claim = dataclasses.replace(claim, published_conversion="classic")
    assert Claim.deserialize(json.loads(json.dumps(claim.serialize()))) == claim


@pytest.mark.parametrize("scheme", SAMPLINGS, ids=lambda s: type(s).__name__)
def test_samplings_survive_json(scheme):
    assert sampling.get(json.loads(json.dumps(scheme.serialize()))) == scheme
    assert scheme.describe() and scheme.adjacency


def test_unknown_events_and_samplings_raise_instead_of_being_guessed():
    class Unheard(events.Event):
        def get_config(self):
            return {}

    class Unseen(sampling.Sampling):
        pass

    try:
        with pytest.raises(TypeError, match="event"):
            rdp_per_release(Unheard(), Poisson(0.1), [2])
        with pytest.raises(TypeError, match="sampling"):
            rdp_per_release(GaussianRelease(1.0), Unseen(), [2])
    finally:
        del events.Event.registry["Unheard"], sampling.Sampling.registry["Unseen"]
    with pytest.raises(ValueError, match="event"):
        events.get({"class_name": "Nonsense", "config": {}})


@pytest.mark.parametrize(
    "make",
    [
        lambda: GaussianRelease(-1.0),
        lambda: GaussianRelease(math.nan),
        lambda: NoiseRelease(noises.Laplace(1.0), []),
        lambda: Profile.from_values([1.0, math.nan]),
        lambda: Profile((2.0, 1.0), (1, 1)),
        lambda: Profile((1.0,), (0,)),
        lambda: Poisson(1.5),
        lambda: Poisson(math.nan),
        lambda: Shuffled(0, 0.1),
        lambda: WithReplacement(0, 10),
    ],
)
def test_nonsense_is_refused_with_what_was_received(make):
    with pytest.raises(ValueError, match="Received"):
        make()


def test_two_gaussian_releases_of_one_batch_are_one_with_added_precisions():
    # They share the sampling: their amplified costs must not simply be added.
    both = ComposedRelease((GaussianRelease(3.0), GaussianRelease(4.0)))
    merged = GaussianRelease((3.0**-2 + 4.0**-2) ** -0.5)
    orders = [2, 5, 20]
    assert rdp_per_release(both, Poisson(0.01), orders) == pytest.approx(
        rdp_per_release(merged, Poisson(0.01), orders)
    )
    apart = sum(rdp_per_release(event, Poisson(0.01), orders) for event in both.events)
    assert rdp_per_release(both, Poisson(0.01), orders)[2] > apart[2]


def test_other_releases_of_one_batch_are_refused():
    release = NoiseRelease(noises.Laplace(1.0), [[0.1]])
    with pytest.raises(ValueError, match="same batch"):
        ComposedRelease((release, release))


def test_full_batch_parts_are_not_amplified():
    part = FullBatchRelease(GaussianRelease(3.0))
    orders = [2, 5]
    assert rdp_per_release(part, Poisson(0.01), orders) == pytest.approx(
        rdp_per_release(GaussianRelease(3.0), FullBatch(), orders)
    )


def test_gaussian_noise_on_a_codebook_costs_its_norm_only():
    entry = CodebookRelease(noises.Gaussian(1.1), Codebook(size=5), 1000)
    sampled = Poisson(0.01)
    assert epsilon([(entry, sampled, 100)], 1e-5) == pytest.approx(
        epsilon([(GaussianRelease(1.1), sampled, 100)], 1e-5)
    )
