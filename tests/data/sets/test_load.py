"""Data sets load by name, or the error says how to obtain them."""

import numpy as np
import pytest

from keras_dp_ext.data import NAMES, load

tfds = pytest.importorskip("tensorflow_datasets")


def write(path, **changes) -> str:
    arrays = {
        "x_train": np.zeros([6, 4, 4], np.uint8),
        "y_train": np.arange(6) % 3,
        "x_test": np.zeros([3, 4, 4], np.uint8),
        "y_test": np.arange(3),
        **changes,
    }
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return str(path)


def test_digits_are_embedded_and_match_scikit_learn():
    digits = load("digits")
    images = pytest.importorskip("sklearn.datasets").load_digits()
    test = np.random.RandomState(0).permutation(len(images.images)) < 359
    np.testing.assert_array_equal(digits.x_train[..., 0], images.images[~test])
    np.testing.assert_array_equal(digits.x_test[..., 0], images.images[test])
    np.testing.assert_array_equal(digits.y_train, images.target[~test])
    np.testing.assert_array_equal(digits.y_test, images.target[test])
    assert digits.num_classes == 10 and digits.x_train.max() == digits.scale


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "svhn_cropped"])
def test_images_come_through_tensorflow_datasets(name, monkeypatch):
    monkeypatch.delenv("KERAS_DP_DATA", raising=False)
    with tfds.testing.mock_data(num_examples=5):
        data = load(name)
    shape = (28, 28, 1) if "mnist" in name else (32, 32, 3)
    assert data.x_train.shape == (5, *shape) and data.x_train.dtype == np.uint8
    assert data.num_classes == 10 and "TensorFlow Datasets" in data.note


def test_reviews_are_hashed_so_that_no_vocabulary_is_released(monkeypatch):
    monkeypatch.delenv("KERAS_DP_DATA", raising=False)
    with tfds.testing.mock_data(num_examples=4):
        data = load("imdb")
    assert data.x_train.shape == (4, 1024)
    assert data.x_train.min() >= 0 and data.x_train.max() < 10_000


def test_the_same_word_hashes_alike_and_padding_is_zero():
    from keras_dp_ext.data.sets.load import hash_words

    tokens = hash_words(np.array([b"Good, GOOD<br />film!", b""]))
    assert tokens[0, 0] == tokens[0, 1] != tokens[0, 2] and tokens[0, 3] > 0
    assert np.all(tokens[0, 4:] == 0) and np.all(tokens[1] == 0)


def test_files_in_the_data_directory_come_first(tmp_path, monkeypatch):
    write(tmp_path / "mnist.npz")
    assert load("mnist", tmp_path).x_train.shape == (6, 4, 4, 1)
    monkeypatch.setenv("KERAS_DP_DATA", str(tmp_path))
    assert load("mnist").note == "mnist.npz"


def test_a_subset_is_called_a_subset(tmp_path):
    write(tmp_path / "cifar10_subset.npz")
    assert "subset" in load("cifar10", tmp_path).note


def test_a_file_of_ones_own_can_be_named(tmp_path):
    data = load(write(tmp_path / "own.npz"))
    assert data.name == "own" and data.num_classes == 3 and data.scale == 255
    assert "number of classes is that of the labels" in data.note


def test_classes_without_an_example_can_be_declared(tmp_path):
    """The greatest label of private data is no public number."""
    data = load(write(tmp_path / "own.npz", num_classes=7))
    assert data.num_classes == 7 and "number of classes" not in data.note
    one = load(write(tmp_path / "one.npz", y_train=np.zeros(6, int), y_test=[0, 0, 1]))
    assert one.num_classes == 2


@pytest.mark.parametrize("name", [name for name in NAMES if name != "digits"])
def test_a_missing_data_set_gets_advice(name, tmp_path, monkeypatch):
    def offline(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr(tfds, "load", offline)
    with pytest.raises(FileNotFoundError, match=rf"{name}\.npz.*KERAS_DP_DATA"):
        load(name, tmp_path)


def test_progress_of_a_download_is_not_part_of_the_output(monkeypatch, capsys):
    def offline(*args, **kwargs):
        print("Downloading and preparing dataset")
        raise OSError("no network")

    monkeypatch.delenv("KERAS_DP_DATA", raising=False)
    monkeypatch.setattr(tfds, "load", offline)
    with pytest.raises(FileNotFoundError, match="no network"):
        load("mnist")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_train": np.zeros([0, 4]), "y_train": np.zeros([0], int)}, "at least one"),
        ({"x_train": np.full([6, 4], np.nan)}, "NaN or infinity in x_train"),
        ({"y_test": np.array([0, 1, 3])}, "labels from 0 to 2"),
        ({"y_train": np.array([-1, 0, 1, 2, 0, 1])}, "labels from 0 to 2"),
        ({"y_train": np.zeros([5], int)}, "as many train examples as labels"),
        ({"y_train": np.zeros([6])}, "one integer label"),
        ({"x_test": np.zeros([3, 5, 5], np.uint8)}, "inputs of one shape"),
        ({"x_test": np.array(["a", "b", "c"])}, "numeric inputs"),
        ({"y_test": None}, "must hold the arrays"),
        ({"y_train": np.array(list("ababab"))}, "one integer label"),
        ({"y_train": np.full([6], np.nan)}, "one integer label"),
        ({"y_train": np.arange(6) * 10**9}, "labels 0, 1, 2"),
        ({"y_train": np.int64(1)}, "arrays of train examples and labels"),
        ({"x_test": np.float32(1)}, "arrays of test examples and labels"),
        ({"num_classes": 1}, "at least two classes"),
        ({"num_classes": [2, 3]}, "cannot be read"),
    ],
)
def test_broken_data_is_refused_in_words(tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        load(write(tmp_path / "broken.npz", **changes))


def test_what_is_no_archive_is_refused_in_words(tmp_path):
    path = tmp_path / "broken.npz"
    path.write_text("not an archive")
    with pytest.raises(ValueError, match="cannot be read"):
        load(str(path))
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="cannot be read"):
        load(str(path))
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(ValueError, match="not an archive of arrays"):
        load(str(path))
    with pytest.raises(FileNotFoundError, match="not found"):
        load(str(tmp_path / "absent.npz"))
    with pytest.raises(ValueError, match="must be one of digits, mnist"):
        load("minst")
    with pytest.raises(FileNotFoundError, match="must be a directory"):
        load("mnist", tmp_path / "absent")


class Frame:
    """What data frames have in common."""

    def __init__(self, **columns):
        self._values, self.columns = columns, list(columns)

    def __getitem__(self, name):
        return self._values[name]

    def __len__(self):
        return len(next(iter(self._values.values())))


def table(n=60):
    rng = np.random.default_rng(0)
    return {
        "age": [int(a) for a in rng.integers(18, 90, n)],
        "city": [str(c) for c in rng.choice(["Rome", "Oslo"], n)],
        "ill": [bool(b) for b in rng.integers(0, 2, n)],
    }


def test_a_data_frame_is_read_as_its_csv_file(tmp_path):
    columns = table()
    path = tmp_path / "people.csv"
    rows = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    path.write_text("\n".join([",".join(columns), *rows]))
    from_file = load(str(path), target="ill")
    from_frame = load(Frame(**columns), target="ill")
    for key in ("x_train", "y_train", "x_test", "y_test"):
        np.testing.assert_array_equal(getattr(from_frame, key), getattr(from_file, key))


def test_missing_values_of_a_data_frame_are_marked():
    pandas = pytest.importorskip("pandas")
    columns = table()
    columns["income"] = [None if i % 2 else 1.0 * i for i in range(60)]
    columns["visits"] = pandas.array([None, *range(59)], dtype="Int64")
    frame = pandas.DataFrame(columns)
    with pytest.raises(ValueError, match="must have an id in each row"):
        load(frame, target="ill", user_column="visits")
    data = load(frame, target="ill")
    x = np.concatenate([data.x_train, data.x_test])
    missing_income, missing_visits = x[:, -3], x[:, -1]
    assert missing_income.sum() == 30 and missing_visits.sum() == 1


def test_a_data_frame_without_the_target_is_refused_in_words():
    with pytest.raises(ValueError, match=r"must name the column.*age, city, ill"):
        load(Frame(**table()), target="sick")
    with pytest.raises(ValueError, match="at least ten rows"):
        load(Frame(**table(5)), target="ill")
