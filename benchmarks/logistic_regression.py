"""Without privacy: scikit-learn's logistic regression on Adult and IMDB.

    python -m benchmarks.logistic_regression --data-dir DIR [--results FILE]

The price of privacy in the presets is the distance from these figures. IMDB is taken as
the preset `bag_of_words` takes it: which words occur, scaled to norm 1.
"""

from __future__ import annotations

import argparse
import csv
import os
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

from keras_dp_ext.data import load

WORDS = 10_000


def which_words_occur(tokens: np.ndarray) -> sparse.csr_matrix:
    rows = np.repeat(np.arange(len(tokens)), tokens.shape[1])
    counts = sparse.csr_matrix(
        (np.ones(tokens.size), (rows, tokens.ravel())), shape=(len(tokens), WORDS)
    )
    counts.data[:] = 1.0  # Duplicates were summed: a word occurs, or it does not.
    return normalize(counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-dir", default=os.environ.get("KERAS_DP_DATA"))
    results = Path("docs/results/logistic_regression.csv")
    parser.add_argument("--results", type=Path, default=results)
    arguments = parser.parse_args()
    rows = []
    for name, features in {"adult": np.asarray, "imdb": which_words_occur}.items():
        data = load(name, arguments.data_dir)
        model = LogisticRegression(max_iter=2000, C=10.0)
        model.fit(features(data.x_train), data.y_train)
        accuracy = model.score(features(data.x_test), data.y_test)
        rows.append({"dataset": name, "test_accuracy": round(accuracy, 5)})
        print(f"{name}: {accuracy:.4f} without privacy")
    with open(arguments.results, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
