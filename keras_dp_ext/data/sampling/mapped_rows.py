"""Rows of an `np.memmap`, read from its file.

Reading through the map itself would count every page that was ever touched, and its
neighbours, as memory of this process, until a training seems to hold the whole file.
"""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np


class MappedRows:
    """One row of a file for each number.

    Args:
        array: A whole map, as `can_read` has it.
    """

    def __init__(self, array: np.memmap):
        self._file = open(array.filename, "rb")  # noqa: SIM115 (open as long as this is)
        self._offset = array.offset
        self._shape, self._dtype = array.shape, array.dtype
        self._bytes = array.itemsize * int(np.prod(array.shape[1:]))
        array.flush()

    @staticmethod
    def can_read(array: Any) -> bool:
        """Whether the file holds exactly this array: no view, no private copy."""
        return (
            isinstance(array, np.memmap)
            and isinstance(array.base, mmap.mmap)
            and array.flags.c_contiguous
            and array.mode != "c"
            and array.filename is not None
            and array.ndim > 0
            and hasattr(os, "pread")
        )

    def __len__(self) -> int:
        return self._shape[0]

    def __getitem__(self, row: int) -> np.ndarray:
        start = self._offset + row * self._bytes
        content = os.pread(self._file.fileno(), self._bytes, start)
        return np.frombuffer(content, self._dtype).reshape(self._shape[1:])
