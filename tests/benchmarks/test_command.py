"""``python -m benchmarks``: which benchmarks there are."""

import importlib
import re

import pytest

command = importlib.import_module("benchmarks.__main__")


def test_unknown_benchmark_is_named_with_those_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "speed"])
    with pytest.raises(SystemExit):
        command.main()
    said = capsys.readouterr().err
    said_all = "distributed, gpu, jax, load, local, lock, models, rpc, world"
    assert f"expected benchmarks among {said_all}, got 'speed'" in said


def test_a_python_that_always_has_its_lock_is_not_measured_without_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sysconfig.get_config_var", lambda name: 0)
    monkeypatch.setattr("sys.argv", ["benchmarks", "lock", "--quick"])
    command.main()
    said = capsys.readouterr().out
    assert "skipped: this Python always has its lock" in said
    assert "written" not in said


def test_without_a_device_the_gpu_benchmark_says_that_it_was_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["benchmarks", "gpu", "--quick"])
    command.main()
    said = capsys.readouterr().out
    assert "skipped: there is no CUDA device here" in said
    assert "written" not in said


@pytest.mark.processes
def test_what_a_call_costs_in_bytecodes_is_counted_on_both_sides(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bytecodes = importlib.import_module("benchmarks.bytecodes")
    monkeypatch.setattr("sys.argv", ["bytecodes", "telegrad", "no-op", "3"])
    bytecodes.main()
    trainer, server = re.findall(r"(\d+) bytecodes, [\d.]+ functions", capsys.readouterr().out)
    assert int(trainer) > 0
    assert int(server) > 0
