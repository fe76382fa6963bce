"""``python -m telegrad.demo``: the main job, as ``telegrad demo`` runs it."""

import sys

from telegrad.cli import main

if __name__ == "__main__":
    sys.exit(main(["demo", *sys.argv[1:]]))
