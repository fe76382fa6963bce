"""What benchmarks report: ratios, units, goals, and where it is written."""

import json
from pathlib import Path

import pytest
from benchmarks.goals import Goal, summary
from benchmarks.measuring import sample_in_turns
from benchmarks.tables import Table


def test_ratio_is_of_minima_unless_medians_are_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = Table("example")
    samples = {"telegrad": [1e-6, 8e-6, 9e-6], "PyTorch": [4e-6, 4e-6, 5e-6]}
    table.add("plain", samples, goal=3)
    table.add("steady", samples, goal=3, by="medians")
    plain, steady = capsys.readouterr().out.splitlines()
    assert plain == "| plain | 1 (8) | 4 (4) | 4.00× | 3× |"
    assert steady == "| steady | 1 (8) | 4 (4) | 0.50× | 3× |"
    assert [goal.met for goal in table.goals] == [True, False]


def test_time_is_shown_for_one_unit_and_kept_for_all(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("example")
    row = table.add("ten", {"telegrad": [1e-3], "PyTorch": [1e-3]}, units=10)
    assert capsys.readouterr().out == "| ten | 100 (100) | 100 (100) | 1.00× |  |\n"
    assert row.minima["telegrad"] == 1e-3


def test_side_without_figures_has_a_dash_and_no_goal(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("example", peers=("PyTorch", "HIPS autograd"))
    goals = dict.fromkeys(table.ratios, 1.0)
    table.add("work", {"telegrad": [1e-6], "PyTorch": [2e-6]}, goal=goals)
    assert capsys.readouterr().out == "| work | 1 (1) | 2 (2) | – | 2.00× | – | 1× / 1× |\n"
    assert [goal.what for goal in table.goals] == ["work: PyTorch / telegrad"]


def test_goal_may_be_an_upper_bound_and_has_no_allowance() -> None:
    assert Goal("growth", 1.0, 1.0, at_most=True).met
    assert not Goal("growth", 1.0, 1.001, at_most=True).met
    assert not Goal("speed", 8.0, 7.999).met


def test_summary_says_what_was_wanted_and_reached() -> None:
    text = summary(
        [Goal("step", 8.0, 3.9, medians=4.2), Goal("import", 0.25, 0.2, at_most=True, unit=" s")]
    )
    assert text.splitlines()[2:] == [
        "| step | ≥ 8× | 3.90× | no | 4.20× |",
        "| import | ≤ 0.25 s | 0.20 s | yes |  |",
        "",
        "1 of 2 goals met",
    ]


def test_table_is_written_as_markdown_and_json(tmp_path: Path) -> None:
    table = Table("example")
    table.add("work", {"telegrad": [2e-6, 1e-6], "PyTorch": [3e-6, 3e-6]}, goal=2)
    path = table.save(tmp_path)
    content = json.loads(path.read_text())
    assert content["rows"][0]["minima"] == {"telegrad": 1e-6, "PyTorch": 3e-6}
    assert content["goals"][0]["met"] is True
    assert content["commit"]
    header, line, row = path.with_suffix(".md").read_text().splitlines()
    assert header.count("|") == line.count("|") == row.count("|")


def test_every_side_is_warmed_up_and_gets_as_many_rounds() -> None:
    calls: list[str] = []
    found = sample_in_turns({each: lambda each=each: calls.append(each) for each in "ab"}, 4, 5)
    assert {side: len(times) for side, times in found.items()} == {"a": 4, "b": 4}
    warm_up, rounds = calls[:10], calls[10:]
    assert "".join(warm_up) == "aaaaabbbbb"
    assert "".join(rounds[::5]) == "abbaabba"
