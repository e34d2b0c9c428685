"""The ledger never reports less than was spent."""

import types

import pytest

from keras_dp_ext import noise as noises
from keras_dp_ext.accounting import (
    BallsInBins,
    Claim,
    CorrelatedRelease,
    CyclicPoisson,
    FixedOrder,
    FullBatch,
    GaussianRelease,
    Ledger,
    NoiseRelease,
    Poisson,
    ScheduledRelease,
    Shuffled,
    Unknown,
    epsilon,
    epsilon_rdp,
)
from keras_dp_ext.accounting.of_model import entries_of

CLAIM = Claim(GaussianRelease(1.1))
POISSON = Poisson(0.01)
SHUFFLED = Shuffled(100, 0.01)


def counts(ledger, total):
    return [count for _, _, count in ledger.entries(total)]


def test_an_empty_ledger_costs_nothing():
    assert Ledger().epsilon(0, 1e-5) == 0.0


def test_counts_follow_from_the_counter():
    ledger = Ledger()
    ledger.open(0, CLAIM, POISSON)
    assert counts(ledger, 70) == [70]
    ledger.open(70, Claim(GaussianRelease(0.8)), POISSON)
    assert counts(ledger, 70) == [70]
    assert counts(ledger, 100) == [70, 30]
    expected = epsilon(
        [(GaussianRelease(1.1), POISSON, 70), (GaussianRelease(0.8), POISSON, 30)], 1e-5
    )
    assert ledger.epsilon(100, 1e-5) == pytest.approx(expected)


def test_opening_the_same_again_changes_nothing():
    ledger = Ledger()
    for start in (0, 10, 10, 35):
        ledger.open(start, CLAIM, POISSON)
    assert counts(ledger, 50) == [50]


def test_a_new_pass_over_shuffled_data_visits_examples_again():
    # Two fits of one and a half epochs: four participations, not three.
    ledger = Ledger()
    ledger.open(0, CLAIM, SHUFFLED)
    ledger.open(150, CLAIM, SHUFFLED)
    assert counts(ledger, 300) == [150, 150]
    four = epsilon([(GaussianRelease(1.1), FullBatch(), 4)], 1e-5)
    assert ledger.epsilon(300, 1e-5) == pytest.approx(four)
    # Whole epochs go on where they were.
    whole = Ledger()
    whole.open(0, CLAIM, SHUFFLED)
    whole.open(200, CLAIM, SHUFFLED)
    assert counts(whole, 300) == [300]


def test_releases_outside_any_segment_raise():
    ledger = Ledger()
    with pytest.raises(ValueError, match="no segment"):
        ledger.epsilon(5, 1e-5)
    ledger.open(5, CLAIM, POISSON)
    with pytest.raises(ValueError, match="no segment"):
        ledger.epsilon(7, 1e-5)


def test_a_counter_that_went_back_raises():
    ledger = Ledger()
    ledger.open(0, CLAIM, POISSON)
    ledger.open(10, Claim(GaussianRelease(2.0)), POISSON)
    with pytest.raises(ValueError, match="last segment"):
        ledger.epsilon(9, 1e-5)
    with pytest.raises(ValueError, match="last segment"):
        ledger.open(9, CLAIM, POISSON)


def test_a_segment_that_nothing_was_released_under_is_replaced():
    ledger = Ledger()
    ledger.open(0, CLAIM, POISSON)
    ledger.open(20, CLAIM, FullBatch())
    ledger.open(20, CLAIM, POISSON)
    assert [segment.sampling for segment in ledger.segments] == [POISSON]
    assert counts(ledger, 30) == [30]


def test_one_off_releases_are_added():
    ledger = Ledger()
    ledger.add(Claim(GaussianRelease(16.0)), FullBatch())
    ledger.open(0, CLAIM, POISSON)
    expected = epsilon(
        [(GaussianRelease(16.0), FullBatch(), 1), (GaussianRelease(1.1), POISSON, 9)],
        1e-5,
    )
    assert ledger.epsilon(9, 1e-5) == pytest.approx(expected)


def test_json_keeps_every_figure():
    ledger = Ledger()
    tanh = Claim(GaussianRelease(0.01), GaussianRelease(1.0), caveat="why")
    ledger.add(Claim(GaussianRelease(16.0)), FullBatch())
    ledger.open(0, tanh, SHUFFLED)
    ledger.open(10, Claim(NoiseRelease(noises.Laplace(1.0), [[0.1]])), POISSON)
    again = Ledger.from_json(ledger.to_json())
    assert again == ledger and again.caveats() == ["why"]
    for figure in ("proven", "published", "if_poisson"):
        assert again.epsilon(30, 1e-5, figure=figure) == ledger.epsilon(
            30, 1e-5, figure=figure
        )


def test_figures_differ_where_they_should():
    ledger = Ledger()
    ledger.open(0, Claim(GaussianRelease(1.0), GaussianRelease(2.0)), SHUFFLED)
    proven, published, poisson = (
        ledger.epsilon(300, 1e-5, figure=figure)
        for figure in ("proven", "published", "if_poisson")
    )
    assert proven == epsilon([(GaussianRelease(1.0), FullBatch(), 3)], 1e-5)
    assert published == epsilon([(GaussianRelease(2.0), POISSON, 300)], 1e-5)
    assert poisson == epsilon([(GaussianRelease(1.0), POISSON, 300)], 1e-5)
    with pytest.raises(ValueError, match="figure"):
        ledger.epsilon(300, 1e-5, figure="hoped for")


def test_models_trained_on_the_same_data_add_up():
    ledgers = []
    for noise, releases in ((1.1, 40), (2.0, 300)):
        ledger = Ledger()
        ledger.open(0, Claim(GaussianRelease(noise)), POISSON)
        ledgers.append((ledger, releases))
    merged = Ledger.merge(ledgers)
    together = merged.epsilon(0, 1e-5)
    expected = epsilon(
        [(GaussianRelease(1.1), POISSON, 40), (GaussianRelease(2.0), POISSON, 300)],
        1e-5,
    )
    assert together == pytest.approx(expected)


def test_a_schedule_that_changes_within_an_epoch_misses_no_participation():
    # Releases 50 to 150 are the end of one epoch and the beginning of the next: an
    # example can be in both, each time with the little noise of the schedule.
    quiet, loud = GaussianRelease(0.5), GaussianRelease(50.0)
    schedule = ScheduledRelease((0, 50, 150), (loud, quiet, loud))
    ledger = Ledger()
    ledger.open(0, Claim(schedule), SHUFFLED)
    least = epsilon([(quiet, FullBatch(), 2)], 1e-5)
    exact = epsilon([(quiet, FullBatch(), 2), (loud, FullBatch(), 2)], 1e-5)
    assert least <= exact < 1.01 * least
    assert ledger.epsilon(200, 1e-5) == pytest.approx(exact)
    assert epsilon([(schedule, SHUFFLED, 200)], 1e-5) == pytest.approx(exact)
    # Nor where the segment, and with it the pass, begins later than the schedule.
    late = Ledger()
    late.open(0, CLAIM, POISSON)
    late.open(70, Claim(schedule), SHUFFLED)
    assert [n for _, s, n in late.entries(320) if s == SHUFFLED] == [80, 20, 150]


def test_windows_count_every_pass_they_touch():
    for start in range(0, 13):
        for stop in range(start + 1, 26):
            touched = {release // 5 for release in range(start, stop)}
            shuffled = Shuffled(5, 0.2)
            windows = shuffled.windows(start, stop)
            assert sum(windows) == stop - start
            assert sum(map(shuffled.participations, windows)) == len(touched)


def restarted(ledger, total):
    """A ledger of another process, which has loaded a checkpoint of the first."""
    state = [0]
    other = Ledger(lambda: state[0])
    state[0] = other.restore(Ledger.from_json(ledger.to_json()), total)
    return other


def test_a_ledger_that_continues_another_replaces_it():
    short = Ledger()
    short.open(0, Claim(GaussianRelease(1.0)), Poisson(0.01))
    long = restarted(short, 30)
    long.open(50, Claim(GaussianRelease(2.0)), Poisson(0.01))
    for first, second in (((short, 30), (long, 80)), ((long, 80), (short, 30))):
        union, total = first[0].including(first[1], *second)
        assert total == 80 and union.segments == long.segments
        assert union.one_offs == ()


def together(ledgers):
    return Ledger.merge(ledgers).epsilon(delta=1e-5)


def test_two_trainings_with_equal_settings_are_two():
    ledgers = []
    for _ in range(2):
        ledger = Ledger()
        ledger.open(0, CLAIM, POISSON)
        ledgers.append(ledger)
    both = epsilon([(GaussianRelease(1.1), POISSON, 200)], 1e-5)
    assert together([(ledger, 100) for ledger in ledgers]) == pytest.approx(both)
    # Also where one model's weights are loaded into the other's optimizer.
    own, total = ledgers[0].including(100, ledgers[1], 100)
    assert total == 100 and own.epsilon(total, 1e-5) == pytest.approx(both)


def test_checkpoints_of_one_training_are_one():
    ledger = Ledger()
    ledger.open(0, CLAIM, SHUFFLED)
    early = Ledger.from_json(ledger.to_json())
    ledger.open(250, CLAIM, POISSON)
    late = Ledger.from_json(ledger.to_json())
    for order in ([(early, 120), (late, 400)], [(late, 400), (early, 120)]):
        merged = Ledger.merge(order)
        assert sum(counts(merged, 0)) == 400
        assert merged.epsilon(delta=1e-5) == pytest.approx(late.epsilon(400, 1e-5))


def test_branches_share_their_common_past():
    # A schedule and passes over the data: the parts must know where they begin.
    schedule = ScheduledRelease((0, 120), (GaussianRelease(3.0), GaussianRelease(1.0)))
    trunk = Ledger()
    trunk.open(0, Claim(schedule), SHUFFLED)
    branches = [restarted(trunk, 150) for _ in range(2)]
    past = epsilon_entries(trunk, 150)
    # From 150 to 300 a branch begins two passes, all with the little noise.
    branch = [(GaussianRelease(1.0), FullBatch(), 2)]
    expected = epsilon(past + 2 * branch, 1e-5)
    assert together([(b, 300) for b in branches]) == pytest.approx(expected)
    # The first training goes on, too, and ends its second pass and a third.
    expected = epsilon(epsilon_entries(trunk, 300) + 2 * branch, 1e-5)
    everything = [(b, 300) for b in branches] + [(trunk, 300)]
    for order in (everything, everything[::-1]):
        assert together(order) == pytest.approx(expected)
    # Whatever is loaded into whatever, and however often.
    union, total = branches[0], 300
    for _ in range(2):
        for other in (branches[1], trunk):
            union, total = union.including(total, other, 300)
    assert total == 300 and union.epsilon(total, 1e-5) == pytest.approx(expected)


def epsilon_entries(ledger, total):
    return [(claim.proven, s, count) for claim, s, count in ledger.entries(total)]


def test_a_training_that_goes_on_after_a_restore_has_a_new_id_only_then():
    first = Ledger()
    first.open(0, CLAIM, POISSON)
    again = restarted(first, 20)
    assert again.segments[0].id == first.segments[0].id
    assert len({s.id for s in again.segments}) == 2
    # Opening the same sampling as before does not go on with the old id.
    again.open(20, CLAIM, POISSON)
    assert len({s.id for s in again.segments}) == 2
    assert counts(again, 50) == [50]


def test_files_of_the_first_format_load():
    import json

    ledger = Ledger()
    ledger.add(Claim(GaussianRelease(16.0)), FullBatch())
    ledger.open(0, CLAIM, SHUFFLED)
    old = json.loads(ledger.to_json())
    del old["version"], old["releases"], old["uncovered"], old["assumed"]
    for record in old["segments"] + old["one_offs"]:
        del record["id"]
    del old["one_offs"][0]["start"]
    loaded = Ledger.from_json(json.dumps(old))
    assert loaded.epsilon(250, 1e-5) == ledger.epsilon(250, 1e-5)
    # It cannot be told whether two of them are one training: both count.
    twice = Ledger.merge([(Ledger.from_json(json.dumps(old)), 250) for _ in range(2)])
    assert sum(counts(twice, 0)) == 502


def test_files_of_a_later_format_are_refused():
    with pytest.raises(ValueError, match="later version"):
        Ledger.from_json('{"version": 99, "segments": [], "one_offs": []}')


def test_named_releases_count_once():
    ledger = Ledger()
    for _ in range(3):
        ledger.add(Claim(GaussianRelease(16.0)), FullBatch(), id="pca")
    assert counts(ledger, 0) == [1]
    ledger.add(Claim(GaussianRelease(16.0)), FullBatch(), count=2, id="pca")
    assert sum(counts(ledger, 0)) == 2
    other = Ledger()
    other.add(Claim(GaussianRelease(16.0)), FullBatch(), id="pca")
    assert sum(counts(Ledger.merge([ledger, other]), 0)) == 2


def test_unknown_sampling_has_no_epsilon_until_it_is_declared():
    ledger = Ledger(lambda: 30)
    ledger.open(0, CLAIM, POISSON)
    ledger.open(10, CLAIM, Unknown())
    assert Ledger.from_json(ledger.to_json()) == ledger
    with pytest.raises(ValueError, match=r"cost of 20 releases .* it was not recorded"):
        ledger.epsilon(delta=1e-5)
    ledger.declare(FullBatch())
    assert counts(ledger, 30) == [10, 20]


def test_a_forked_child_goes_on_with_an_id_of_its_own():
    import os

    ledger = Ledger(lambda: 10)
    ledger.open(0, CLAIM, POISSON)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, ledger.to_json().encode())
        os._exit(0)
    os.waitpid(child, 0)
    childs = Ledger.from_json(os.read(reading, 1 << 20).decode())
    # What both did before the fork counts twice: too much, never too little.
    assert counts(Ledger.merge([ledger, childs]), 0) == [20]


def test_ledgers_that_part_are_both_spent_and_only_once():
    own, foreign = Ledger(), Ledger()
    own.open(0, Claim(GaussianRelease(5.0)), Poisson(0.01))
    foreign.open(0, Claim(GaussianRelease(0.3)), Poisson(0.01))
    expected = epsilon(
        [
            (GaussianRelease(5.0), Poisson(0.01), 20),
            (GaussianRelease(0.3), Poisson(0.01), 10),
        ],
        1e-5,
    )
    for _ in range(2):
        own, total = own.including(20, foreign, 10)
        assert total == 20
        assert own.epsilon(total, 1e-5) == pytest.approx(expected)


@pytest.mark.parametrize(
    "sampling",
    [Shuffled(11, 0.1), FixedOrder(11), CyclicPoisson(0.5, 11), BallsInBins(11)],
    ids=lambda sampling: type(sampling).__name__,
)
def test_an_example_may_have_its_place_in_the_quietest_release_of_each_pass(sampling):
    """Costs that are known afterwards come by noise, without their places."""
    quiet, loud = GaussianRelease(0.5), GaussianRelease(50.0)
    claim = Claim(GaussianRelease(0.0))
    ledger = Ledger(lambda: 110)
    ledger.open(0, claim, sampling)
    optimizer = types.SimpleNamespace(
        ledger=ledger,
        mechanism=types.SimpleNamespace(
            recorded_events=lambda group: [(quiet, 10), (loud, 100)]
        ),
        privacy_claim=lambda: claim,
        _claimed_group=lambda: 1,
    )
    entries = [(c.proven, s, n) for c, s, n in entries_of(optimizer)]
    amplified = isinstance(sampling, CyclicPoisson)
    place = Poisson(0.5) if amplified else FullBatch()
    worst = epsilon_rdp([(quiet, place, 10)], 1e-5)
    assert epsilon_rdp(entries, 1e-5) >= worst


def test_people_stay_people_where_a_run_begins_anywhere():
    """A restored run on shuffled data counts as full batches, of the same unit."""
    claim = Claim(CorrelatedRelease(1.0, noises.TreeAggregation()))
    saved, ledger = Ledger(lambda: 5), Ledger(lambda: 0)
    saved.open(0, claim, Shuffled(10, 0.1, unit="person"))
    total = ledger.restore(saved, 5)
    assert 0 < ledger.epsilon(total + 3, delta=1e-5) < float("inf")
    assert {segment.sampling.unit for segment in ledger.segments} == {"person"}
