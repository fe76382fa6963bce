"""The examples in the documents about calls are run, each as a script of its own."""

import doctest
import subprocess
import sys
from pathlib import Path

import pytest
from tests.test_docs import examples

pytestmark = pytest.mark.processes

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = [
    pytest.param(example, id=f"{name} {number}")
    for name in ("calling-another-worker.md", "failures.md")
    for number, example in enumerate(examples((DOCS / name).read_text()), 1)
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_runs_and_prints_what_the_page_says(example, tmp_path):
    script = tmp_path / "example.py"
    script.write_text(example.code)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    checker = doctest.OutputChecker()
    assert checker.check_output(example.printed or "", done.stdout, flags), done.stdout
