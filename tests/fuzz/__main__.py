"""Coverage-guided fuzzing of all that parses what a peer sent: ``make fuzz MINUTES=10``.

Each target runs in a process of its own for its share of the time, from the corpus that lies beside
this file and what earlier runs have kept under build/fuzz. With ``--keep``, inputs that reach
something new are added to the corpus. A failing input is written to build/fuzz, and the command
fails. Its lines say how many inputs each target took.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from telegrad.errors import TelegradError

HERE = Path(__file__).parent
FOUND = HERE.parents[1] / "build" / "fuzz"
_RUNS = re.compile(r"Done (\d+) runs in (\d+) second")


def fuzz(name: str, arguments: list[str]) -> None:
    """Run one target in this process; does not return."""
    import atheris

    with atheris.instrument_imports(include=["telegrad.rpc"]):
        from tests.fuzz.targets import TARGETS

    parse = TARGETS[name].parse

    def once(data: bytes) -> None:
        try:
            parse(data)
        except TelegradError:
            pass

    atheris.Setup([sys.argv[0], *arguments], once)
    atheris.Fuzz()


def folders(name: str) -> tuple[Path, Path]:
    """Where new inputs of a target go, and where those are that the repository has."""
    from tests.fuzz.targets import TARGETS

    new, kept = FOUND / "corpus" / name, HERE / "corpus" / name
    for folder in (new, kept):
        folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(TARGETS[name].seeds()):
        (new / f"seed-{number}").write_bytes(seed)
    return new, kept


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="for all targets together")
    parser.add_argument("--target", action="append", help="only this one; may be repeated")
    parser.add_argument("--keep", action="store_true", help="add what is new to the corpus")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    given, rest = parser.parse_known_args()
    if given.run:
        fuzz(given.run, rest)
    from tests.fuzz.targets import TARGETS

    names = given.target or list(TARGETS)
    FOUND.mkdir(parents=True, exist_ok=True)
    seconds = max(1, round(given.minutes * 60 / len(names)))
    failed = []
    for name in names:
        print(f"fuzzing {name} for {seconds} s", flush=True)
        limits = ["-rss_limit_mb=2048", "-timeout=10", "-max_len=65536", "-print_final_stats=1"]
        command = [sys.executable, "-m", "tests.fuzz", "--run", name, *limits]
        command += [f"-max_total_time={seconds}", f"-artifact_prefix={FOUND}/{name}-"]
        new, kept = folders(name)
        done = subprocess.run([*command, str(new), str(kept)], capture_output=True, text=True)
        runs = _RUNS.search(done.stderr)
        if done.returncode or runs is None:
            failed.append(name)
            print(f"{name}: FAILED\n{done.stderr[-4000:]}")
        else:
            print(f"{name}: {int(runs[1]):,} inputs in {runs[2]} s, none failed", flush=True)
            if given.keep:
                merge = [sys.executable, "-m", "tests.fuzz", "--run", name, "-merge=1"]
                subprocess.run([*merge, str(kept), str(new)], capture_output=True, check=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
