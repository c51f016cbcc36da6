"""`python -m treewise` is the same as the `treewise` command."""

import sys

from treewise.cli import main

if __name__ == "__main__":
    sys.exit(main())
