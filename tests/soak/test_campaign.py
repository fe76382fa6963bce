"""The campaign of ``make soak``, for some seconds, and what its journal adds up to."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.soak.checks import same_bits
from tests.soak.journal import Journal, read_journal, tally
from tests.soak.operations import KINDS, expected_of

ROOT = Path(__file__).parents[2]


@pytest.mark.processes
@pytest.mark.parametrize("transport", ["unix", "board-tcp"])
def test_some_seconds_of_chaos_end_without_a_violation(transport):
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--minutes", "0.2", "--seed", "7"]
        + ["--transport", transport],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = tally(read_journal(ROOT / "build/soak/7/journal.jsonl"))
    assert counts["violations"] == {}
    assert counts["checks"] == {transport: 1}
    assert counts["outcomes"]["exact"] > 0
    assert sum(counts["faults"].values()) > 0
    assert f"operations: {sum(counts['operations'].values()):,}" in done.stdout


def test_the_journal_adds_up_and_shows_what_must_not_occur(tmp_path, capsys):
    journal = Journal(tmp_path / "journal")
    journal.write("operation", kind="call", outcome="exact")
    journal.write("operation", kind="call", outcome="WorkerLost")
    journal.write("fault", kind="kill", worker="w1")
    journal.write("check", transport="tcp")
    assert journal.violations == 0
    journal.write("wrong", kind="call")
    assert journal.violations == 1
    journal.close()
    assert tally(read_journal(tmp_path / "journal")) == {
        "operations": {"call": 2},
        "outcomes": {"WorkerLost": 1, "exact": 1},
        "faults": {"kill": 1},
        "checks": {"tcp": 1},
        "violations": {"wrong": 1},
    }
    assert "VIOLATION" in capsys.readouterr().out


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_that_is_off_by_one_bit_is_found(kind):
    seed = next(seed for seed in range(50) if expected_of(kind, seed))
    expected = expected_of(kind, seed)
    found = {name: np.array(value) for name, value in expected.items()}
    assert same_bits(found, expected)
    some = next(name for name, value in found.items() if value.size)
    found[some].reshape(-1).view(np.uint8)[0] ^= 1
    assert not same_bits(found, expected)
    del found[some]
    assert not same_bits(found, expected)
