"""`python -m keras_dp_ext.cli` is `keras-dp`."""

import sys

from keras_dp_ext.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
