"""Stages, one after the other, each with a cluster of its own, over one transport after another."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from tests.soak.journal import Journal, read_journal, tally
from tests.soak.network import sweep, why_no_network

__all__ = ["TRANSPORTS", "Campaign"]

TRANSPORTS = ("unix", "tcp", "board", "tls", "board-tcp", "board-tls")
ROOT = Path(__file__).parents[2]
PLACE = ROOT / "build" / "soak"
_LONGEST = 300.0
"""Seconds of one stage: then another cluster has its turn."""
_GRACE = 4.0
"""How many times its length a stage may take: the checks at rest wait for many things."""


class Campaign:
    """Attacks from one seed. The same seed makes the same choices; their moments are the machine's.

    Arguments:
        minutes: How long workers are under attack, without the checks.
        seed: Of all that is drawn.
        transports: Which of unix, tcp and tls have their turn; board, board-tcp and board-tls are
            open worlds that meet in a directory, where rank 0 is killed, too.
    """

    def __init__(self, minutes: float, seed: int, transports: list[str]) -> None:
        self._seconds = minutes * 60
        self._seed = seed
        self._transports = list(transports)
        if any("tls" in each for each in transports) and (reason := why_no_network()) is not None:
            print(f"no network faults: {reason}")
            self._transports = [each for each in transports if "tls" not in each]
        self.directory = PLACE / str(seed)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self._journal = Journal(self.directory / "journal.jsonl")

    def run(self) -> dict[str, dict[str, int]]:
        """Run all stages; return the counts."""
        each = min(_LONGEST, self._seconds / len(self._transports))
        stages = max(1, round(self._seconds / each))
        for number in range(stages):
            transport = self._transports[number % len(self._transports)]
            print(f"stage {number + 1} of {stages}: {transport}, {each:.0f} s", flush=True)
            self._run_stage(number, transport, each)
        self._journal.close()
        return tally(read_journal(self.directory / "journal.jsonl"))

    def _run_stage(self, number: int, transport: str, seconds: float) -> None:
        directory = self.directory / f"stage-{number}"
        seed = f"{self._seed} {number}"
        command = [sys.executable, "-m", "tests.soak.stage", "--transport", transport]
        command += ["--seconds", str(seconds), "--seed", seed, "--directory", str(directory)]
        # A session of its own, so that whatever hangs can be ended with all it has started.
        process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
        before = self._violations()
        try:
            code = process.wait(300 + _GRACE * seconds)
            if code and self._violations() == before:
                self._journal.write("crash", stage=number, code=code)
        except subprocess.TimeoutExpired:
            self._journal.write("hang", stage=number)
        finally:
            self._end(process)

    def _violations(self) -> int:
        return sum(tally(read_journal(self.directory / "journal.jsonl"))["violations"].values())

    def _end(self, process: subprocess.Popen) -> None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # Nothing of it is left, as it should be.
        process.wait()
        sweep(process.pid)
