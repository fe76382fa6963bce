"""`python -m telegrad.cli` is `telegrad`."""

import sys

from telegrad.cli import main

sys.exit(main())
