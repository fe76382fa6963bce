"""``python -m benchmarks``: which benchmarks there are."""

import importlib

import pytest

command = importlib.import_module("benchmarks.__main__")


def test_unknown_benchmark_is_named_with_those_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "speed"])
    with pytest.raises(SystemExit):
        command.main()
    said = capsys.readouterr().err
    said_all = "distributed, jax, load, local, models, rpc"
    assert f"expected benchmarks among {said_all}, got 'speed'" in said
