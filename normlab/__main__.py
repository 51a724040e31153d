"""`python -m normlab`."""

import sys

from normlab.cli import main

if __name__ == "__main__":
    sys.exit(main())
