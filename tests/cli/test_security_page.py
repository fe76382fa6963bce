"""The examples of docs/security.md, run in the order in which they stand there."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from telegrad.cli import main

PAGE = Path(__file__).parents[2] / "docs/security.md"


def test_the_examples_of_the_security_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```(console|python)\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    assert [kind for kind, _ in blocks] == ["console", "python", "console", "console", "console"]
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, str(PAGE), "exec"), {})
            continue
        for line in text.splitlines():
            command, *arguments = shlex.split(line.removeprefix("$ "))
            if command == "telegrad":
                assert main(arguments) == 0
            else:
                assert (command, arguments[0]) == ("rm", "-r")
                shutil.rmtree(arguments[1])
    assert "reachable at tls://127.0.0.1:" in capsys.readouterr().out
    assert sorted(path.name for path in Path("cluster").iterdir()) == (
        ["authority", "ps", "trainer0", "trainer1", "trainer2"]
    )
    assert len(list(Path("cluster-2").iterdir())) == 5
