"""Runs the command line with `python -m normlab`."""

import os
import sys

# Python puts the current folder first, where any file could take the place of a module.
if not sys.flags.safe_path and os.path.realpath(sys.path[0]) == os.path.realpath(os.curdir):
    del sys.path[0]

from normlab.cli import main

if __name__ == "__main__":
    sys.exit(main())
