"""The examples of training run, check themselves, and leave their pictures."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.mark.processes
@pytest.mark.parametrize("name", ["digits_cnn", "char_transformer"])
def test_an_example_runs_and_leaves_its_picture(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert "largest difference of the losses" in done.stdout
    assert (tmp_path / f"{name}.svg").read_text().startswith("<svg")
