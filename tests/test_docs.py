"""Every example in the documentation runs, and prints what the page says it prints.

A page is README.md or a file in docs. Its blocks marked ``python`` run in order in one namespace; a
block marked ``text`` right after one of them is what it prints. ``...`` in it stands for anything.
Other blocks are not run.
"""

import ast
import doctest
import io
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from telegrad.distributed.rpc import Options

ROOT = Path(__file__).resolve().parent.parent
TESTED_ELSEWHERE = {
    "docs/calling-another-worker.md": "tests/rpc/test_documents.py",
    "docs/failures.md": "tests/rpc/test_documents.py",
    "docs/security.md": "tests/cli/test_security_page.py",
}
"""Pages whose examples need more than a namespace, and the test that runs them."""
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
FILE = re.compile(r"`([\w/]+\.py)`")
METHOD = re.compile(r"`([A-Z][A-Za-z]+)\.([a-z_]+)`")
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<kind>[^\n`]*)\n(?P<body>.*?)^(?P=indent)``` *$",
    re.MULTILINE | re.DOTALL,
)


class Example(NamedTuple):
    """One block of code, and what it should print (None where the page does not say)."""

    line: int
    code: str
    printed: str | None


def blocks(text: str) -> Iterator[tuple[int, str, str, str]]:
    """The line, the kind and the body of each block, and the text between it and the one before."""
    end = 0
    for match in FENCE.finditer(text):
        indent = len(match["indent"])
        body = "".join(line[indent:] or "\n" for line in match["body"].splitlines(keepends=True))
        line = text.count("\n", 0, match.start("body")) + 1
        yield line, match["kind"].strip(), body, text[end : match.start()]
        end = match.end()


def examples(text: str) -> list[Example]:
    found: list[Example] = []
    follows_code = False
    for line, kind, body, between in blocks(text):
        if kind == "python":
            found.append(Example(line, body, None))
        elif kind == "text" and follows_code and not between.strip():
            found[-1] = found[-1]._replace(printed=body)
        follows_code = kind == "python"
    return found


def pages() -> list[Path]:
    candidates = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
    return [
        page
        for page in candidates
        if page.exists()
        and str(page.relative_to(ROOT)) not in TESTED_ELSEWHERE
        and examples(page.read_text())
    ]


def run(page: str, found: list[Example]) -> None:
    """Runs the examples of one page; an error points to the line of the page."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    checker = doctest.OutputChecker()
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    for example in found:
        code = compile("\n" * (example.line - 1) + example.code, page, "exec")
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(code, namespace)
        if example.printed is None:
            continue
        if not checker.check_output(example.printed, printed.getvalue(), flags):
            pytest.fail(
                f"{page}, line {example.line}: expected the example to print\n{example.printed}\n"
                f"but it printed\n{printed.getvalue()}"
            )


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_example_of_a_page_runs_and_prints_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(str(page.relative_to(ROOT)), examples(page.read_text()))


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs").glob("**/*.md")), ids=lambda page: page.name
)
def test_a_page_with_several_examples_says_how_they_run(page):
    text = page.read_text()
    if len(examples(text)) > 1:
        is_alone = str(page.relative_to(ROOT)) in TESTED_ELSEWHERE
        assert ("Each block on this page is a program of its own." in text) == is_alone
        assert ("This page is one program: its blocks run from the top." in text) != is_alone


def test_pages_left_out_here_have_a_test_of_their_own():
    for page, test in TESTED_ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text()


def anchors(page: Path) -> set[str]:
    """What a link can name after ``#``: headings as GitHub writes them."""
    headings = HEADING.findall(FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_every_link_leads_to_a_file_and_a_heading_that_are_there():
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/README.md")):
        for path, anchor in LINK.findall(page.read_text()):
            target = page.parent / path if path else page
            assert target.exists(), f"{page}: {path}"
            assert not anchor or anchor in anchors(target), f"{page}: {path}#{anchor}"


def test_readme_names_every_folder_and_file_of_the_package():
    text = (ROOT / "README.md").read_text()
    files = {file.name for file in (ROOT / "src/telegrad").glob("[!_]*.py")}
    assert [each for each in sorted(files) if f"`{each}`" not in text] == []
    folders = {file.parent.name for file in (ROOT / "src/telegrad").glob("*/__init__.py")}
    assert [each for each in sorted(folders) if f"  {each}/ " not in text] == []


def test_every_folder_has_a_readme_that_names_every_file_and_folder_in_it():
    pages = {file.parent / "README.md" for file in ROOT.glob("src/telegrad/*/**/__init__.py")}
    for page in sorted(pages):
        modules = list(page.parent.glob("*.py"))
        if len(modules) == 1 and not page.exists():
            continue  # It is its `__init__.py`, whose docstring says what it is.
        text = page.read_text()
        modules = [f"{file.stem}.py" for file in page.parent.glob("*.py")]
        folders = [f"{file.parent.name}/" for file in page.parent.glob("*/__init__.py")]
        unnamed = {each for each in modules + folders if f"`{each}`" not in text}
        assert unnamed <= {"__init__.py"}, page


def test_every_file_that_a_page_or_a_docstring_names_is_there():
    folders = ("src", "tests", "docs", "examples", "benchmarks", "tools")
    files = [f"/{file}" for folder in folders for file in (ROOT / folder).rglob("*.py")]
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/README.md")]
    count = 0
    for page in (*pages, *ROOT.glob("src/**/*.py")):
        for name in FILE.findall(FENCE.sub("", page.read_text())):
            assert any(file.endswith(f"/{name}") for file in files), f"{page}: {name}"
            count += 1
    assert count > 500


def test_names_answer_where_one_would_change_what():
    page = (ROOT / "CONTRIBUTING.md").read_text()
    _, _, table = page.partition("## Where would you change")
    rows = re.findall(r"^\| (.+\?) \| (.+) \|$", table, re.MULTILINE)
    assert len(rows) == 10
    for question, answer in rows:
        first = re.match(r"`([\w/]+\.py)`", answer)
        assert first, question
        assert (ROOT / "src/telegrad" / first[1]).exists(), question


def members() -> dict[str, set[str]]:
    """What each class of the package defines: methods, properties, fields."""
    found: dict[str, set[str]] = {}
    for file in ROOT.glob("src/telegrad/**/*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                names = found.setdefault(node.name, set())
                for each in ast.walk(node):
                    if isinstance(each, ast.FunctionDef):
                        names.add(each.name)
                    elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                        names.add(each.target.id)
                    elif isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
                        names.add(each.attr)
    return found


def test_the_methods_that_the_readme_of_a_folder_names_are_there():
    known = members()
    count = 0
    for page in ROOT.glob("src/telegrad/**/README.md"):
        for name, member in METHOD.findall(page.read_text()):
            assert member in known.get(name, ()), f"{page}: {name}.{member}"
            count += 1
    assert count > 40


def test_the_page_and_the_help_name_every_option():
    page = (ROOT / "docs/calling-another-worker.md").read_text()
    for option in Options.__dataclass_fields__:
        assert f"| `{option}` |" in page, option
        assert f"    {option}: " in (Options.__doc__ or ""), option


def page_of(*parts: tuple[str, str]) -> str:
    return "\n".join(f"Words.\n\n```{kind}\n{body}\n```" for kind, body in parts)


def test_a_page_with_a_wrong_output_fails():
    text = page_of(("python", "x = 2")) + "\n\n```python\nprint(x)\n```\n\n```text\n3\n```\n"
    with pytest.raises(pytest.fail.Exception, match="line 8: expected the example to print"):
        run("page.md", examples(text))
    run("page.md", examples(text.replace("\n3\n", "\n2\n")))


def test_a_page_with_a_failing_example_points_to_its_line():
    with pytest.raises(ZeroDivisionError) as info:
        run("page.md", examples(page_of(("python", "a = 1\n1 / 0"))))
    assert info.traceback[-1].lineno + 1 == 5


def test_only_blocks_marked_python_run_and_only_a_next_text_block_is_output():
    text = page_of(("bash", "exit 1"), ("python", "print(1)"), ("text", "not its output"))
    assert [example.printed for example in examples(text)] == [None]
    run("page.md", examples(text))
