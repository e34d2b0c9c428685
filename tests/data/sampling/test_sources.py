"""Data that does not fit into memory: read by number, never as a whole."""

import subprocess
import sys
import textwrap
import threading

import keras
import numpy as np
import pytest

import keras_dp_ext as dp

SIZE, BATCH = 60, 12


class Pairs:
    """The least that a source needs."""

    def __init__(self):
        self.read, self.threads = [], set()

    def __len__(self):
        return SIZE

    def __getitem__(self, index):
        self.read.append(index)
        self.threads.add(threading.get_ident())
        return np.full([2, 3], index + 1, np.float32), np.int32(index)


class Dictionaries(Pairs):
    def __getitem__(self, index):
        return {"image": np.full([4], index + 1, np.uint8), "label": index}


class Texts(Pairs):
    def __getitem__(self, index):
        return f"text {index + 1}", index


def rows(dataset):
    """`{label: x}` of all rows that are examples; padding must be zero."""
    found = {}
    for x, y, weight in dataset:
        for a, b, w in zip(x.numpy(), y.numpy(), weight.numpy(), strict=True):
            if w:
                found[int(b)] = a
            else:
                assert not np.any(a) and not b
    return found


@pytest.mark.parametrize("sampler", [dp.data.poisson_batches, dp.data.shuffled_batches])
def test_lots_of_a_source(sampler):
    lots = sampler(Pairs(), batch_size=BATCH)
    assert dp.data.sampling_of(lots).num_examples == SIZE
    assert [tuple(s.shape[1:]) for s in lots.element_spec] == [(2, 3), (), ()]
    found = rows(lots)
    assert found and all(np.all(x == label + 1) for label, x in found.items())
    if sampler is dp.data.shuffled_batches:
        assert set(found) == set(range(SIZE))


def test_the_same_lots_as_from_arrays():
    x = np.arange(1, SIZE + 1, dtype=np.float32)[:, None, None] * np.ones([2, 3])
    arrays = dp.data.poisson_batches(
        x.astype("float32"), np.arange(SIZE, dtype=np.int32), batch_size=BATCH, seed=3
    )
    lots = dp.data.poisson_batches(Pairs(), batch_size=BATCH, seed=3)
    assert lots.element_spec == arrays.element_spec
    for one, other in zip(lots, arrays, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_entries_of_dictionaries_and_text():
    found = rows(dp.data.poisson_batches(Dictionaries(), "label", batch_size=BATCH))
    assert found and all(x.dtype == np.uint8 for x in found.values())
    found = rows(dp.data.poisson_batches(Texts(), batch_size=BATCH))
    assert all(x == f"text {y + 1}".encode() for y, x in found.items())


def test_targets_and_weights_beside_a_source():
    class Inputs(Pairs):
        def __getitem__(self, index):
            return np.float32([index + 1])

    lots = dp.data.shuffled_batches(
        Inputs(), np.arange(SIZE), BATCH, sample_weight=np.full([SIZE], 2.0)
    )
    assert len(rows(lots)) == SIZE
    assert sum(float(np.sum(w)) for *_, w in lots) == 2.0 * SIZE


def test_only_the_rows_of_a_lot_are_read_and_by_several_threads():
    source = Pairs()
    lots = dp.data.poisson_batches(source, batch_size=BATCH, steps_per_epoch=1)
    assert source.read == [0]  # Its shape.
    found = rows(lots)
    assert sorted(source.read[1:]) == sorted(found)
    assert len(source.threads) > 1


def test_it_trains_with_epsilon():
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(SIZE)])
    model.compile(
        dp.DPSGD(noise_multiplier=2.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    accountant = dp.PrivacyAccountant(delta=1e-3)
    lots = dp.poisson_batches(Pairs(), batch_size=BATCH)
    model.fit(lots, verbose=0, callbacks=[accountant])
    expected = dp.accounting.epsilon(
        noise_multiplier=2.0, num_examples=SIZE, batch_size=BATCH, epochs=1, delta=1e-3
    )
    assert accountant.epsilon == pytest.approx(expected, rel=1e-3)


def test_batches_are_not_examples():
    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 5

        def __getitem__(self, index):
            return np.zeros([8, 3]), np.zeros([8])

    with pytest.raises(ValueError, match="PyDataset gives batches"):
        dp.data.poisson_batches(Batches(), batch_size=2)


def test_examples_of_several_shapes_are_refused():
    class Ragged(Pairs):
        def __getitem__(self, index):
            return np.zeros([1 + index % 2]), index

    with pytest.raises(Exception, match="must have one shape"):
        rows(dp.data.shuffled_batches(Ragged(), batch_size=BATCH))


@pytest.mark.parametrize("y", [None, "target"])
def test_wrong_targets(y):
    source = Dictionaries() if y else Pairs()
    with pytest.raises(ValueError, match=r"must name an entry|same number"):
        dp.data.poisson_batches(source, y or np.zeros([3]), batch_size=2)


def test_ten_million_rows_of_one_kilobyte_stay_on_the_disk(tmp_path):
    code = f"""
        import re
        import numpy as np
        import keras_dp_ext as dp
        import tensorflow as tf
        tf.constant(0)
        def peak():
            # Of this process alone: `getrusage` begins with the peak of its parent.
            with open("/proc/self/status") as status:
                return int(re.search(r"VmHWM:\\s+(\\d+)", status.read())[1])
        x = np.memmap({str(tmp_path / "x")!r}, np.uint8, "w+", shape=(10_000_000, 1024))
        y = np.memmap({str(tmp_path / "y")!r}, np.uint8, "w+", shape=(10_000_000,))
        x[77], y[77] = 7, 1
        before = peak()
        lots = dp.data.poisson_batches(x, y, batch_size=1024, steps_per_epoch=20)
        count = sum(int(np.sum(w)) for *_, w in lots)
        assert 15_000 < count < 26_000, count
        after = peak()
        print("RSS", before // 1024, after // 1024)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    before, after = map(int, done.stdout.split("RSS")[1].split())
    assert after < 2000 and after - before < 500, (before, after)


@pytest.mark.parametrize("part", ["whole", "view", "copy on write"])
def test_maps_of_files(tmp_path, part):
    path = tmp_path / "x"
    x = np.memmap(path, np.int32, "w+", shape=(SIZE, 2))
    x[:] = 1 + np.arange(SIZE)[:, None]
    if part == "view":
        x = x[:, :1]
    elif part == "copy on write":
        x = np.memmap(path, np.int32, "c", shape=(SIZE, 2))
        x[:] += 100
    lots = dp.data.shuffled_batches(x, np.arange(SIZE), BATCH)
    extra = 101 if part == "copy on write" else 1
    found = rows(lots)
    assert len(found) == SIZE
    assert all(np.all(value == label + extra) for label, value in found.items())
