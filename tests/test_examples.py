"""Every example runs, checks itself, and says something."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
WITH_PICTURES = ("char_transformer", "digits_cnn")

pytestmark = pytest.mark.processes


def test_the_examples_of_training_over_workers_are_there():
    names = {path.stem for path in EXAMPLES}
    over_workers = {
        "coupled_solvers",
        "gradient_penalty",
        "hessian_vector_product",
        "hypergradients",
        "jax_simulator",
        "parameter_server",
        "pipeline",
        "remote_embedding",
        "split_learning",
        "torch_maml",
    }
    assert over_workers <= names


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_ends_well_when_it_is_quick(path, tmp_path):
    environment = {**os.environ, "PYTHONWARNINGS": "error::RuntimeWarning"}
    has_picture = path.stem in WITH_PICTURES
    done = subprocess.run(
        [sys.executable, str(path), "--quick", *(["--out", "pictures"] if has_picture else [])],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) >= 3
    if has_picture:
        assert "largest difference of the losses" in done.stdout
        assert (tmp_path / "pictures" / f"{path.stem}.svg").read_text().startswith("<svg")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_explains_itself(path):
    text = path.read_text()
    assert text.startswith('"""')
    assert "--quick" in text
