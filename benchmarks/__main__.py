"""All benchmarks, one after the other: ``make bench``, or ``python -m benchmarks local rpc``."""

import importlib
import sys
from pathlib import Path


def main() -> None:
    here = Path(__file__).parent
    known = sorted(path.stem.removeprefix("bench_") for path in here.glob("bench_*.py"))
    chosen = sys.argv[1:] or known
    for name in chosen:
        if name not in known:
            raise SystemExit(f"expected benchmarks among {', '.join(known)}, got {name!r}")
    sys.argv[1:] = []  # The rest of the line was for us, not for the benchmarks.
    for name in chosen:
        print(f"\n## {name}\n", flush=True)
        importlib.import_module(f"benchmarks.bench_{name}").main()


if __name__ == "__main__":
    main()
