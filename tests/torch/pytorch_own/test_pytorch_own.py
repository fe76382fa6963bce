"""PyTorch's own tests pass with telegrad in its place, where docs/coming-from-torch.md says so."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[2] / "docs" / "coming-from-torch.md"

pytestmark = pytest.mark.processes


def run(tmp_path: Path, *options: str) -> dict[str, Any]:
    """Runs tests by the command, in a process without threads, which the tests are forked from."""
    found = tmp_path / "outcomes.json"
    done = subprocess.run(
        [sys.executable, str(HERE), "--json", str(found), *options], capture_output=True, text=True
    )
    assert found.exists(), done.stdout + done.stderr
    answer: dict[str, Any] = json.loads(found.read_text())
    return answer


def failures(outcomes: list[dict[str, Any]]) -> str:
    return "\n\n".join(f"{o['test']}\n{o['reason']}" for o in outcomes if o["result"] == "failed")


@pytest.mark.timeout(900)
def test_what_the_page_says_passes_passes(tmp_path):
    # Only a hang takes so long; on a busy machine one of a thousand passes may take a minute.
    found = run(tmp_path, "--quick", "--deadline", "200")
    assert failures(found["outcomes"]) == ""
    assert len(found["outcomes"]) > 300
    assert {o["result"] for o in found["outcomes"]} == {"passed"}
    assert found["document"] in PAGE.read_text(), "run: python tests/torch/pytorch_own --document"


@pytest.mark.skipif("TELEGRAD_SOAK" not in os.environ, reason="minutes: TELEGRAD_SOAK=1 runs it")
def test_the_tests_that_pass_are_those_that_the_page_lists(tmp_path):
    found = run(tmp_path, "--deadline", "30")
    passed = [o["test"] for o in found["outcomes"] if o["result"] == "passed"]
    missing = set(found["passing"]) - set(passed)
    assert failures([o for o in found["outcomes"] if o["test"] in missing]) == ""
    gained = set(passed) - set(found["passing"])
    assert gained == set(), "these pass now: take them off the list"
