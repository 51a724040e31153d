"""Runs the command line for `python -m normlab`."""

import os
import sys

# Python puts the current folder first on its path, where any file could shadow a module.
if not sys.flags.safe_path and os.path.realpath(sys.path[0]) == os.path.realpath(os.curdir):
    del sys.path[0]

from normlab.cli import main

if __name__ == "__main__":
    sys.exit(main())
