"""People as the unit of privacy: from the sampler through `fit` to the statement."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_dp_ext as dp
from keras_dp_ext.accounting import FullBatch, GaussianRelease, Poisson
from keras_dp_ext.accounting.default_delta import default_delta

PEOPLE, SLOTS = 30, 3


def data(seed=0):
    """Rows of 30 people, from one to nine of each, in random order."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(np.repeat(np.arange(PEOPLE), rng.integers(1, 10, PEOPLE)))
    x = rng.normal(size=[len(ids), 3]).astype("float32")
    return x, x[:, :1].copy(), ids


def lots_of(x, y, ids, **arguments):
    return dp.data.poisson_batches(
        x,
        y,
        **{"batch_size": 6, "user_ids": ids, "examples_per_user": SLOTS, **arguments},
    )


def model_with(optimizer, **arguments):
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile(optimizer, "mse", **arguments)
    return model


def fit(optimizer, lots, callbacks=(), epochs=1, **arguments):
    model = model_with(optimizer, **arguments)
    model.fit(lots, epochs=epochs, verbose=0, callbacks=list(callbacks))
    return model


# The sampler ------------------------------------------------------------------


def test_rows_of_a_person_lie_side_by_side_and_nobody_else_among_them():
    x, y, ids = data()
    x[:, 0], x[:, 1] = ids, np.arange(len(ids))
    seen = set()
    for inputs, _, weights in lots_of(x, y, ids, steps_per_epoch=300):
        slots = inputs.numpy().reshape([-1, SLOTS, 3])
        real = weights.numpy().reshape([-1, SLOTS]) > 0
        people = [set(slot[rows, 0]) for slot, rows in zip(slots, real, strict=True)]
        assert all(len(person) <= 1 for person in people)
        drawn = [next(iter(person)) for person in people if person]
        assert len(drawn) == len(set(drawn))
        for slot, rows in zip(slots, real, strict=True):
            if rows.any():
                # As many rows as there are, none of them twice.
                assert rows.sum() == min(SLOTS, np.sum(ids == slot[rows][0, 0]))
                assert len(set(slot[rows, 1])) == rows.sum()
                seen |= set(slot[rows, 1].astype(int))
    assert seen == set(range(len(ids)))


def test_people_are_drawn_independently_with_the_rate_whatever_their_rows():
    x, y, ids = data()
    x[:, 0] = ids
    steps = 2000
    lots = lots_of(x, y, ids, steps_per_epoch=steps, seed=3)
    counts = np.zeros(PEOPLE)
    for inputs, _, weights in lots:
        drawn = inputs.numpy()[weights.numpy() > 0, 0].astype(int)
        counts[np.unique(drawn)] += 1
    deviation = np.sqrt(0.2 * 0.8 / steps)
    assert np.abs(counts / steps - 0.2).max() < 4.5 * deviation


def test_every_row_of_a_person_is_as_likely_as_every_other():
    ids = np.zeros(8, int)
    ids[-1] = 1
    x = np.arange(8, dtype="float32")[:, np.newaxis]
    counts = np.zeros(8)
    lots = lots_of(x, x, ids, batch_size=2, steps_per_epoch=2000, seed=5)
    for _ in range(5):  # The order within a person changes from epoch to epoch.
        for inputs, _, weights in lots.take(400):
            np.add.at(counts, inputs.numpy()[weights.numpy() > 0, 0].astype(int), 1)
    share = counts[:7] / counts[:7].sum()
    assert np.abs(share - 1 / 7).max() < 0.01


def test_ids_may_be_anything_that_tells_people_apart():
    x, y, ids = data()
    for same in (
        ids.tolist(),
        ids.astype(str),
        [f"p{n}" for n in ids],
        ids.astype(object),
    ):
        assert lots_of(x, y, same).dp_sampling.num_examples == PEOPLE
    assert lots_of(x, y, tf.constant(ids.astype(str))).dp_sampling.num_examples == 30


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda ids: [str(n) if n % 2 else int(n) for n in ids],
            r"one type.*integers, st",
        ),
        (lambda ids: np.array([*map(str, ids[:-1]), None], object), "NoneType"),
        (lambda ids: np.where(ids == 3, np.nan, ids), "float64"),
        (lambda ids: ids[:-1], "one id for each"),
        (lambda ids: ids[:, np.newaxis], "one id for each"),
    ],
)
def test_ids_that_may_hide_a_person_are_refused(change, message):
    x, y, ids = data()
    with pytest.raises(ValueError, match=message):
        lots_of(x, y, change(ids))


def test_both_arguments_or_none():
    x, y, ids = data()
    with pytest.raises(ValueError, match="together"):
        lots_of(x, y, ids, examples_per_user=None)
    with pytest.raises(ValueError, match="together"):
        lots_of(x, y, None)
    with pytest.raises(ValueError, match="multiple of `examples_per_user`"):
        lots_of(x, y, ids, physical_batch_size=100)
    with pytest.raises(ValueError, match=r"at least .* expected people"):
        lots_of(x, y, ids, physical_batch_size=9)


def test_a_public_rate_is_about_adding_a_person():
    x, y, ids = data()
    label = lots_of(x, y, ids, sampling_rate=0.1).dp_sampling
    assert label.sampling.adjacency == "add or remove one person"
    assert label.num_examples == 60
    label = lots_of(x, y, ids).dp_sampling
    assert label.sampling.adjacency.startswith("zero-out: replace one person")


# What a person does to the sum --------------------------------------------------


def released_sum(x, y, ids, **arguments):
    """Sum of the clipped averages of all people: noise is negligible."""
    optimizer = dp.optimizers.DPSGD(
        learning_rate=1.0, l2_norm_clip=1.0, noise_multiplier=1e-9, noise_seed=0
    )
    model = model_with(optimizer, **arguments)
    model.set_weights([np.zeros([3, 1]), np.zeros([1])])
    lots = lots_of(x, y, ids, batch_size=len(set(ids)), steps_per_epoch=1)
    with pytest.warns(UserWarning, match="noise_seed"):
        model.fit(lots, verbose=0)
    return -np.concatenate([w.ravel() for w in model.get_weights()]) * len(set(ids))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_person_is_the_clipped_average_of_the_rows_that_are_there(jit_compile):
    x, y, ids = data()
    keep = [np.flatnonzero(ids == n)[:SLOTS] for n in range(PEOPLE)]
    kept = np.concatenate(keep)
    total = released_sum(x[kept], y[kept], ids[kept], jit_compile=jit_compile)
    expected = np.zeros(4)
    for rows in keep:
        # The loss is (w x + b - y)^2 at w = b = 0.
        gradients = -2 * y[rows] * np.concatenate([x[rows], np.ones([len(rows), 1])], 1)
        mean = gradients.mean(axis=0)
        expected += mean * min(1.0, 1.0 / np.linalg.norm(mean))
    np.testing.assert_allclose(total, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 50])
@pytest.mark.parametrize("value", [1e4, -1e4, np.nan, 1e38])
def test_a_person_with_fifty_rows_and_one_with_one_move_the_sum_alike(rows, value):
    x, y, ids = data()
    # One person of a single row in a corner of the data; the others tiny.
    x, y = x * 1e-3, y * 1e-3
    before = released_sum(x, y, ids)
    more = np.full([rows, 3], value, "float32")
    after = released_sum(
        np.concatenate([x, more]),
        np.concatenate([y, np.ones([rows, 1], "float32")]),
        np.concatenate([ids, np.full([rows], 77)]),
    )
    # All rows of people with more than three are not in every lot.
    noise = 2e-3
    moved = np.linalg.norm(after - before)
    assert moved <= 1 + noise
    if abs(value) == 1e4:
        assert moved >= 1 - noise


def test_ids_that_are_interleaved_do_not_matter():
    x, y, ids = data()
    kept = np.concatenate([np.flatnonzero(ids == n)[:SLOTS] for n in range(PEOPLE)])
    shuffled = np.random.default_rng(1).permutation(kept)
    sums = [released_sum(x[rows], y[rows], ids[rows]) for rows in (kept, shuffled)]
    np.testing.assert_allclose(*sums, rtol=1e-4, atol=1e-5)


# What is claimed ----------------------------------------------------------------


def test_sensitivity_is_not_doubled_and_the_statement_says_person():
    x, y, ids = data()
    accountant = dp.callbacks.PrivacyAccountant()
    model = fit(
        dp.optimizers.DPSGD(noise_multiplier=1.3), lots_of(x, y, ids), [accountant]
    )
    ((claim, sampling, count),) = model.optimizer.ledger.entries()
    assert claim.proven == GaussianRelease(1.3)
    assert (sampling.unit, sampling.rate, count) == ("person", 0.2, 5)
    text = " ".join(accountant.statement().split())
    assert "The unit of privacy is one person with all of their rows" in text
    assert "each person with probability 0.2" in text
    assert "one example" not in text
    # Delta by the number of people, not of rows.
    assert accountant._delta == default_delta(PEOPLE)


def test_epsilon_is_that_of_dp_accounting():
    import dp_accounting

    x, y, ids = data()
    model = fit(dp.optimizers.DPSGD(noise_multiplier=1.3), lots_of(x, y, ids), epochs=3)
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(0.2, dp_accounting.GaussianDpEvent(1.3)), 15
    )
    accountant = dp_accounting.pld.PLDAccountant().compose(event)
    ours = dp.accounting.epsilon_of(model, delta=1e-2, accountant="pld")
    assert ours == pytest.approx(accountant.get_epsilon(1e-2), rel=1e-3)


MECHANISMS = {
    "dpsgd": lambda: dp.optimizers.DPSGD(learning_rate=0.1),
    "adam": lambda: dp.optimizers.DPAdam(learning_rate=0.1),
    "encoding": lambda: dp.optimizers.EncodedSGD(learning_rate=0.1),
    "tanh": lambda: dp.optimizers.TanhSGD(learning_rate=0.1),
    "directional": lambda: dp.optimizers.DirectionalSGD(learning_rate=0.1),
}


@pytest.mark.parametrize("name", MECHANISMS)
def test_audit_on_neighbours_that_differ_in_a_person(name):
    def train(x, y, ids):
        return fit(
            MECHANISMS[name](),
            lots_of(x, y, ids, steps_per_epoch=3),
            [dp.callbacks.PrivacyAccountant(delta=1e-2)],
        )

    x, y, ids = data()
    examples = ["huge", "opposed", "not a number"] if name == "dpsgd" else ["opposed"]
    for rows in (1, 20) if name == "dpsgd" else (20,):
        found = dp.audit.audit_fit(
            train, (x, y), user_ids=ids, rows_of_person=rows, examples=examples
        )
        assert found.within_claim, str(found)
        assert found.participations == 3
        assert 0.5 < found.shift < 1.001


def test_the_audit_finds_rows_that_are_bounded_one_by_one(monkeypatch):
    from keras_dp_ext._fit_context import FitContext

    # What would happen if the optimizer overlooked whose rows these are.
    monkeypatch.setattr(FitContext, "unit", "example")

    def train(x, y, ids):
        return fit(
            dp.optimizers.DPSGD(learning_rate=0.1),
            lots_of(x, y, ids),
            [dp.callbacks.PrivacyAccountant(delta=1e-2)],
        )

    x, y, ids = data()
    found = dp.audit.audit_fit(
        train, (x, y), user_ids=ids, rows_of_person=20, examples=["huge"]
    )
    assert found.shift == pytest.approx(SLOTS, rel=1e-3)
    assert not found.within_claim


# Lots, labels, other trainings ----------------------------------------------------


def test_lots_are_cut_between_people():
    x, y, ids = data()
    lots = lots_of(x, y, ids, accumulation_steps=2)
    assert lots.element_spec[2].shape[0] % SLOTS == 0

    def train(x, y, ids):
        optimizer = dp.optimizers.DPSGD(gradient_accumulation_steps=2)
        return fit(
            optimizer,
            lots_of(x, y, ids, accumulation_steps=2),
            [dp.callbacks.PrivacyAccountant(delta=1e-2)],
        )

    found = dp.audit.audit_fit(
        train, (x, y), user_ids=ids, rows_of_person=9, examples=["huge"]
    )
    assert found.within_claim and found.releases == 5


def test_shuffled_people_take_part_once_an_epoch():
    x, y, ids = data()

    def train(x, y, ids):
        lots = dp.data.shuffled_batches(
            x, y, batch_size=8, user_ids=ids, examples_per_user=SLOTS
        )
        return fit(
            dp.optimizers.DPSGD(),
            lots,
            [dp.callbacks.PrivacyAccountant(delta=1e-2)],
            epochs=2,
        )

    found = dp.audit.audit_fit(
        train, (x, y), user_ids=ids, rows_of_person=9, examples=["huge"]
    )
    assert found.within_claim and found.participations == 2
    (sampling,) = found.accounted.samplings
    assert sampling.unit == "person"


def cyclic_lots(x, y, ids, **arguments):
    return dp.data.cyclic_poisson_batches(
        x, y, batch_size=5, cycle=3, user_ids=ids, examples_per_user=SLOTS, **arguments
    )


def test_people_of_a_cycle_come_in_their_turn_only():
    x, y, ids = data()
    x[:, 0] = ids
    lots = cyclic_lots(x, y, ids)
    turns = {person: set() for person in range(PEOPLE)}
    counts = []
    for _ in range(40):
        for step, (inputs, _, weights) in enumerate(lots):
            rows = inputs.numpy()[weights.numpy() > 0]
            people = set(rows[:, 0].astype(int))
            counts.append(len(people))
            for person in people:
                turns[person].add(step % 3)
                assert np.sum(rows[:, 0] == person) == min(SLOTS, np.sum(ids == person))
    assert all(len(turn) == 1 for turn in turns.values())
    assert np.mean(counts) == pytest.approx(5, abs=0.5)
    sampling = lots.dp_sampling.sampling
    assert (sampling.unit, sampling.rate) == ("person", 0.5)


@pytest.mark.parametrize("order", ["cyclic", "fixed"])
def test_audit_of_correlated_noise_on_neighbours_that_differ_in_a_person(order):
    accountants = []

    def train(x, y, ids):
        lots = cyclic_lots(x, y, ids)
        if order == "fixed":
            lots = dp.data.fixed_order_batches(
                x, y, batch_size=11, user_ids=ids, examples_per_user=SLOTS
            )
        accountants.append(dp.callbacks.PrivacyAccountant(delta=1e-2))
        optimizer = dp.optimizers.BandMFSGD(bands=3, steps=6, learning_rate=0.1)
        return fit(optimizer, lots, accountants[-1:], epochs=2)

    x, y, ids = data()
    found = dp.audit.audit_fit(
        train, (x, y), user_ids=ids, rows_of_person=20, examples=["huge"]
    )
    assert found.within_claim, str(found)
    assert found.participations == found.accounted.participations > 1
    assert 0.9 < found.shift < 1.001
    text = " ".join(accountants[0].statement().split())
    assert "one person" in text and "one example" not in text


def test_microbatches_of_another_kind_are_refused():
    x, y, ids = data()
    with pytest.raises(ValueError, match="all rows of a person are one microbatch"):
        fit(dp.optimizers.DPSGD(num_microbatches=12), lots_of(x, y, ids))
    # As many as there are people means one for each.
    model = fit(dp.optimizers.DPSGD(num_microbatches=6), lots_of(x, y, ids))
    assert model.optimizer.privacy_claim().proven == GaussianRelease(1.1)


@pytest.mark.parametrize(
    "change",
    [
        lambda lots: lots.unbatch().batch(24),
        lambda lots: lots.unbatch().shuffle(100).batch(24),
        lambda lots: lots.rebatch(SLOTS),
        lambda lots: lots.map(lambda x, y, w: (x[::-1], y[::-1], w[::-1])),
        lambda lots: lots.map(lambda *b: tuple(tf.roll(t, 1, axis=0) for t in b)),
        lambda lots: lots.map(
            lambda *b: tuple(tf.gather(t, tf.random.shuffle(tf.range(72))) for t in b)
        ),
        lambda lots: lots.map(
            lambda *b: tuple(
                tf.reshape(
                    tf.transpose(
                        tf.reshape(t, [SLOTS, -1, *t.shape[1:]]),
                        [1, 0, *range(2, t.shape.rank + 1)],
                    ),
                    t.shape,
                )
                for t in b
            )
        ),
        lambda lots: lots.map(lambda x, y, w: (x, y, tf.ones_like(w))),
    ],
)
def test_what_takes_a_persons_rows_apart_is_refused(change):
    x, y, ids = data()
    lots = change(lots_of(x, y, ids))
    with pytest.raises(ValueError):
        fit(
            dp.optimizers.DPSGD(),
            lots,
            [dp.callbacks.PrivacyAccountant(delta=1e-2)],
        )


def test_a_map_of_single_rows_keeps_people():
    x, y, ids = data()
    lots = lots_of(x, y, ids).map(lambda x, y, w: (2 * x, y, w)).prefetch(1)
    model = fit(dp.optimizers.DPSGD(), lots)
    assert model.optimizer.ledger.entries()[0][1].unit == "person"


def test_a_stated_sampling_cannot_turn_rows_into_people():
    x, y, ids = data()
    people = Poisson(0.2, unit="person")
    plain = tf.data.Dataset.from_generator(
        lambda: iter([(x[:6], y[:6])]),
        output_signature=(tf.TensorSpec([6, 3]), tf.TensorSpec([6, 1])),
    )
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-2, sampling=people)
    with pytest.raises(ValueError, match="unit of what is bounded"):
        fit(dp.optimizers.DPSGD(), plain, [accountant])
    optimizer = dp.optimizers.DPSGD()
    optimizer.build(model_with(optimizer).trainable_variables)
    with pytest.raises(ValueError, match="unit of what is bounded"):
        optimizer.declare_sampling(lots_of(x, y, ids).dp_sampling.sampling)
    with pytest.raises(ValueError, match="not person by person"):
        optimizer.ledger.declare(people)


def test_full_batches_of_people_stay_people():
    x, y, ids = data()
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-2, sampling=FullBatch())
    model = fit(dp.optimizers.DPSGD(), lots_of(x, y, ids), [accountant])
    ((_, sampling, _),) = model.optimizer.ledger.entries()
    assert sampling == FullBatch(unit="person")


def test_no_epsilon_covers_examples_and_people():
    x, y, ids = data()
    model = fit(dp.optimizers.DPSGD(), lots_of(x, y, ids))
    with pytest.raises(ValueError, match="no epsilon covers both"):
        model.fit(
            dp.data.poisson_batches(x, y, batch_size=6),
            verbose=0,
            callbacks=[dp.callbacks.PrivacyAccountant(delta=1e-2)],
        )
    assert int(model.optimizer.releases) == 5  # Nothing was spent.
    model.train_on_batch(x[:6], y[:6])
    with pytest.raises(ValueError, match="no epsilon covers both"):
        dp.accounting.epsilon_of(model, delta=1e-2)


def test_a_graph_of_people_is_not_used_for_examples():
    """Keras keeps the traced step; lots of both have the same shape here."""
    x, y, ids = data()
    people = lots_of(x, y, ids)
    rows = people.element_spec[2].shape[0]
    examples = dp.data.poisson_batches(
        x, y, batch_size=6, physical_batch_size=rows, steps_per_epoch=1
    )
    model = model_with(dp.optimizers.DPSGD(noise_multiplier=1e-9, learning_rate=1.0))
    model.fit(people, verbose=0)
    model.set_weights([np.zeros([3, 1]), np.zeros([1])])
    x[:], y[:] = 1e4, 1.0
    examples = dp.data.poisson_batches(
        x, y, batch_size=len(x), physical_batch_size=len(x) + 8, steps_per_epoch=1
    )
    model.fit(examples, verbose=0)
    total = np.linalg.norm(np.concatenate([w.ravel() for w in model.get_weights()]))
    # Each row by itself: all of them, of norm 1, in one direction.
    assert total == pytest.approx(1.0, rel=1e-3)


def test_a_reloaded_model_goes_on_with_people(tmp_path):
    x, y, ids = data()
    model = fit(dp.optimizers.DPSGD(), lots_of(x, y, ids))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    loaded.fit(lots_of(x, y, ids), verbose=0)
    assert [(s.unit, n) for _, s, n in loaded.optimizer.ledger.entries()] == [
        ("person", 10)
    ]


def test_a_training_step_of_ones_own_trains_people_too():
    class Own(keras.Model):
        def train_step(self, batch):
            x, y, _ = batch
            with tf.GradientTape() as tape:
                # No weights here: padding must not count all the same.
                losses = tf.square(self(x) - y)[:, 0] + 5.0
                loss = self.optimizer.scale_loss(tf.reduce_mean(losses))
            gradients = tape.gradient(loss, self.trainable_variables)
            self.optimizer.apply_gradients(
                zip(gradients, self.trainable_variables, strict=True)
            )
            return {"loss": loss}

    def train(x, y, ids):
        inputs = keras.Input([3])
        model = Own(inputs, keras.layers.Dense(1)(inputs))
        model.compile(dp.optimizers.DPSGD())
        model.fit(lots_of(x, y, ids), verbose=0)
        return model

    x, y, ids = data()
    found = dp.audit.audit_fit(
        train, (x, y), user_ids=ids, rows_of_person=9, examples=["huge"]
    )
    assert found.within_claim, str(found)
    assert found.shift == pytest.approx(1.0, rel=1e-3)


def test_a_step_that_mixes_people_is_refused_and_one_that_mixes_a_persons_rows_is_not():
    class Mixing(keras.layers.Layer):
        def __init__(self, rows):
            super().__init__()
            self.rows = rows

        def call(self, x):
            slots = tf.reshape(x, [-1, self.rows, 3])
            slots -= tf.reduce_mean(slots, axis=1, keepdims=True)
            return tf.reshape(slots, [72, 3])

    x, y, ids = data()
    lots = lots_of(x, y, ids, physical_batch_size=72)
    for rows, is_fine in ((SLOTS, True), (4, False), (2 * SLOTS, False)):
        inputs = keras.Input([3], batch_size=72)
        model = keras.Model(inputs, keras.layers.Dense(1)(Mixing(rows)(inputs)))
        model.compile(dp.optimizers.DPSGD(), "mse")
        if is_fine:
            model.fit(lots, verbose=0)
            continue
        with pytest.raises(ValueError, match=r"mixes|batch axis"):
            model.fit(lots, verbose=0)


def test_eager_steps_do_not_know_people():
    class Eager(keras.Model):
        def train_step(self, batch):
            x, y, _ = batch
            with tf.GradientTape(persistent=True) as tape:
                losses = tf.square(self(x) - y)[:, 0]
            self.optimizer.minimize(losses, self.trainable_variables, tape=tape)
            return {}

    x, y, ids = data()
    inputs = keras.Input([3])
    model = Eager(inputs, keras.layers.Dense(1)(inputs))
    model.compile(dp.optimizers.DPSGD(), run_eagerly=True)
    with pytest.raises(ValueError, match="traced training step"):
        model.fit(lots_of(x, y, ids), verbose=0)
