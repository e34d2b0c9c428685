"""What a schedule executes is what it hands to the accountant."""

import json

import keras
import pytest
import tensorflow as tf

from keras_dp_ext.noise import NoiseSchedule, schedule


def test_the_graph_and_the_pieces_agree_on_every_release():
    table = NoiseSchedule(starts=(0, 3, 10), factors=(1.0, 0.5, 2.0))
    spelled_out = [f for f, count in table.pieces(0, 15) for _ in range(count)]
    step = tf.function(table, jit_compile=True, autograph=False)
    executed = [float(step(tf.constant(i, tf.int64))) for i in range(15)]
    assert executed == spelled_out


@pytest.mark.parametrize(("start", "stop"), [(0, 1), (2, 3), (3, 4), (5, 40), (7, 7)])
def test_pieces_cover_any_range_once(start, stop):
    table = NoiseSchedule(starts=(0, 3, 10), factors=(1.0, 0.5, 2.0))
    whole = [f for f, count in table.pieces(0, 50) for _ in range(count)]
    part = [f for f, count in table.pieces(start, stop) for _ in range(count)]
    assert part == whole[start:stop]


def test_a_keras_schedule_becomes_a_short_table_within_half_a_percent():
    decay = keras.optimizers.schedules.ExponentialDecay(1.0, 300, 0.5)
    table = NoiseSchedule.tabulate(decay, steps=300)
    assert 60 < len(table.starts) < 80
    for release in (0, 17, 150, 299):
        ((factor, _),) = table.pieces(release, release + 1)
        assert factor == pytest.approx(float(decay(release)), rel=0.006)


def test_the_last_factor_stays():
    table = NoiseSchedule.tabulate(lambda step: 1.0 + (step >= 5), steps=10)
    assert table.pieces(1000, 1001) == table.pieces(9, 10)


def test_schedules_survive_json_and_come_from_dictionaries():
    table = schedule.get({100: 0.5, 0: 1.0})
    assert table == NoiseSchedule((0, 100), (1.0, 0.5))
    assert schedule.get(json.loads(json.dumps(table.serialize()))) == table


@pytest.mark.parametrize(
    "identifier", [lambda step: 1.0 - step, {5: 1.0}, {0: 0.0}, {0: -1.0}, "decay"]
)
def test_schedules_that_cannot_be_accounted_are_refused(identifier):
    with pytest.raises(ValueError, match="Argument"):
        schedule.get(identifier)


def test_a_keras_schedule_or_a_function_is_tabulated_by_itself():
    import keras

    from keras_dp_ext.noise import schedule

    decay = keras.optimizers.schedules.ExponentialDecay(1.0, 1000, 0.5)
    table = schedule.get(decay)
    same = schedule.get(lambda step: 0.5 ** (step / 1000))
    for release in (0, 500, 1999, 19_999):
        ((factor, _),) = table.pieces(release, release + 1)
        assert factor == pytest.approx(0.5 ** (release / 1000), rel=0.006)
    assert table.starts == pytest.approx(same.starts, abs=1)
    # What is executed and what is accounted is the same table, also beyond its end.
    assert table.pieces(10**6, 10**6 + 1)[0][0] == table.factors[-1]
