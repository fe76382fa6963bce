"""Chaos on real processes for as long as it is told: ``make soak MINUTES=10``.

Four workers over Unix sockets, TCP, in an open world and, as root, over TLS between network
namespaces run operations while they are killed, stopped, started again, cut off. Every operation
must end in its time with the bits of one process or a typed error; after each minute, at rest,
everyone must be there and nothing left behind. What was done is in build/soak/SEED/journal.jsonl;
the command fails on any violation.
"""

import argparse
import secrets
import sys

from tests.soak.campaign import TRANSPORTS, Campaign


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="a fresh one if none is given")
    parser.add_argument("--transport", action="append", choices=TRANSPORTS, help="may be repeated")
    given = parser.parse_args()
    seed = secrets.randbelow(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    campaign = Campaign(given.minutes, seed, given.transport or [*TRANSPORTS])
    totals = campaign.run()
    for name, counts in totals.items():
        total = sum(counts.values())
        print(f"{name}: {total:,}" + "".join(f", {what} {n:,}" for what, n in counts.items()))
    failed = bool(totals["violations"])
    if failed:
        print(f"VIOLATIONS; again with: make soak MINUTES={given.minutes:g} SEED={seed}")
    print(f"journal: {campaign.directory}/journal.jsonl")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
