"""A data set in memory: what `load` returns and the training command expects."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class DataSet:
    """Arrays of a classification problem, checked.

    Attributes:
        name: Name, as for `load`.
        x_train: Training inputs; images have a channel axis.
        y_train: Training labels, integers below `num_classes`.
        x_test: Test inputs.
        y_test: Test labels.
        num_classes: Number of classes.
        scale: Dividing inputs by it brings them into [0, 1]; 1 for what is not
            an image. A public constant, not a statistic of the data.
        note: Where the data came from, and what is special about it.
        user_ids: To whom each training row belongs, if it is people who are protected.
    """

    name: str
    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray
    num_classes: int
    scale: float = 1.0
    note: str = ""
    user_ids: np.ndarray | None = None

    def __post_init__(self) -> None:
        if self.num_classes < 2:
            raise ValueError(
                f"Data set `{self.name}` must have at least two classes. "
                f"Received: num_classes={self.num_classes}"
            )
        for part in ("train", "test"):
            x, y = getattr(self, f"x_{part}"), getattr(self, f"y_{part}")
            if x.ndim == 0 or y.ndim == 0:
                raise ValueError(
                    f"Data set `{self.name}` must have arrays of {part} examples and "
                    f"labels. Received: x_{part} of shape {x.shape}, y_{part} of shape "
                    f"{y.shape}"
                )
            if len(x) == 0 or len(x) != len(y):
                raise ValueError(
                    f"Data set `{self.name}` must have as many {part} examples as "
                    f"labels, and at least one. Received: {len(x)} examples, "
                    f"{len(y)} labels"
                )
            if x.dtype.kind not in "buif":
                raise ValueError(
                    f"Data set `{self.name}` must have numeric inputs. "
                    f"Received: x_{part}.dtype={x.dtype}"
                )
            if x.dtype.kind == "f" and not np.isfinite(x).all():
                raise ValueError(
                    f"Data set `{self.name}` must be finite. "
                    f"Received: NaN or infinity in x_{part}"
                )
            if y.ndim != 1 or y.dtype.kind not in "bui":
                raise ValueError(
                    f"Data set `{self.name}` must have one integer label for each "
                    f"example. Received: y_{part} of shape {y.shape}, {y.dtype}"
                )
            if y.min() < 0 or y.max() >= self.num_classes:
                raise ValueError(
                    f"Data set `{self.name}` must have labels from 0 to "
                    f"{self.num_classes - 1}. Received: y_{part} from {y.min()} to "
                    f"{y.max()}"
                )
        if self.x_train.shape[1:] != self.x_test.shape[1:]:
            raise ValueError(
                f"Data set `{self.name}` must have inputs of one shape. Received: "
                f"{self.x_train.shape[1:]} and {self.x_test.shape[1:]}"
            )
