"""Makes the helpers of this folder importable, for the tests and their workers."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
