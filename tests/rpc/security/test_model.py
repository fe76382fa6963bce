"""The models of the handshake, old and new, before a prover: see models/README.md."""

import shutil
import subprocess
from pathlib import Path

import pytest

PROVER = shutil.which("proverif")
MODELS = Path(__file__).parent / "models"


@pytest.mark.skipif(PROVER is None, reason="proverif is not installed: see models/README.md")
@pytest.mark.parametrize(
    ("model", "verdicts"),
    [
        # Agreement of both sides, records, both keys; then three that must be reachable.
        ("handshake.pv", [True, True, True, True, True, False, False, False]),
        # The relay is found, and bytes of anybody's making; names, nonces and the key held.
        ("handshake_before.pv", [False, False, False, True, True]),
    ],
)
def test_the_prover_finds_the_relay_in_the_old_handshake_and_none_in_this(
    model: str, verdicts: list[bool]
) -> None:
    assert PROVER is not None
    done = subprocess.run(
        [PROVER, str(MODELS / model)], capture_output=True, text=True, timeout=120, check=True
    )
    summary = done.stdout.rpartition("Verification summary:")[2]
    said = [line for line in summary.splitlines() if line.startswith("Query ")]
    assert [line.endswith(" is true.") for line in said] == verdicts
    assert all(line.endswith((" is true.", " is false.")) for line in said)
