"""How Sphinx builds the site (``make docs``). It is read without a server and without a network."""

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "docs/_sphinx")]

project = "telegrad"
copyright = "The telegrad maintainers"
extensions = [
    "myst_parser",
    "names",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["_sphinx"]
nitpick_ignore_regex = [("py:.*", ".*")]

autodoc_inherit_docstrings = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autosummary_generate = False
copybutton_exclude = ".linenos, .gp, .go"
default_role = "code"
highlight_language = "text"
myst_heading_anchors = 3
napoleon_use_rtype = False
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

html_theme = "pydata_sphinx_theme"
html_title = "telegrad"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # it would be fetched, which a browser refuses for files
html_theme_options = {
    "footer_start": ["copyright"],
    "footer_end": [],
    "header_links_before_dropdown": 6,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_nav_level": 2,
}


def read(_app: Sphinx, page: str, source: list[str]) -> None:
    """Makes the README the home page, without its folders; names pages that are not in docs."""
    folder = (ROOT / "docs" / page).parent

    def named(link: re.Match[str]) -> str:
        is_page = (folder / link[2]).resolve().is_relative_to(ROOT / "docs")
        return link[0] if is_page else f"{link[1]} (`{link[2].removeprefix('../')}`)"

    if page == "index":
        readme = (ROOT / "README.md").read_text().partition("\n## The folders")[0]
        readme = readme.replace("](docs/", "](").replace("](CONTRIBUTING.md", "](contributing.md")
        source[0] = readme + source[0]
    source[0] = re.sub(r"\[([^\]]+)\]\((\.\./[^)]+\.md)\)", named, source[0])


def setup(app: Sphinx) -> None:
    app.connect("source-read", read)
