"""``python -m landbalance``."""

import sys

from landbalance.cli import main

if __name__ == "__main__":
    sys.exit(main())
