"""The site that ``make docs`` builds: complete, links that lead somewhere, no need of a network."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from tests.test_reference import EVERYTHING

pytest.importorskip("sphinx", reason="the docs' tools are not installed")
ROOT = Path(__file__).resolve().parent.parent


class Links(HTMLParser):
    """What a page links to, what it loads, and what can be linked to in it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.linked: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors: set[str] = {""}
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name == "href" and value is not None:
                (self.linked if tag == "a" else self.loaded).add(value)
            elif name in ("src", "srcset") and value:
                self.loaded.add(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages, by their paths; built anew, about fifteen seconds."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-q", "-E", "-W", "--keep-going", "-b", "html"]
    built = subprocess.run(
        [*command, "-d", str(out / "read"), str(ROOT / "docs"), str(out / "html")],
        capture_output=True,
        text=True,
    )
    assert (built.returncode, built.stderr) == (0, "")
    pages = sorted((out / "html").glob("**/*.html"))
    return {page: Links(page) for page in pages if "_static" not in page.parts}  # templates


def test_every_link_of_the_site_leads_to_a_page_and_a_place_in_it(site):
    for page, links in site.items():
        for link in links.linked | links.loaded:
            where = urlsplit(link)
            if where.scheme or link == "#":
                continue
            target = (page.parent / unquote(where.path)).resolve() if where.path else page
            assert target.exists(), f"{page.name}: {link}"
            if where.fragment and target.suffix == ".html":
                assert unquote(where.fragment) in site[target].anchors, f"{page.name}: {link}"


def test_the_site_loads_nothing_from_elsewhere(site):
    for page, links in site.items():
        assert [each for each in links.loaded if re.match(r"(https?:)?//", each)] == [], page.name
    (root,) = {page.parent for page in site if page.name == "search.html"}
    for sheet in root.glob("_static/**/*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", sheet.read_text()), sheet


def test_the_reference_has_every_public_name(site):
    (folder,) = {page.parent for page in site if page.name == "linalg.html"}
    there = set().union(*(site[page].anchors for page in folder.glob("*.html")))
    shown = {id(value) for name, value in EVERYTHING if name in there}
    assert [name for name, value in EVERYTHING if id(value) not in shown] == []
