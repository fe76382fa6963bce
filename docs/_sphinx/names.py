"""The directive of the reference: ``.. names:: telegrad.linalg``, or with some names below it.

A table of the names with the first line of each, then each with its signature and docstring. What
a signature has for mistaken callers alone (``**unknown``) or says nothing with (``: Any``) is left
out.
"""

import importlib
import re
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

__all__ = ["Names", "setup"]


class Names(SphinxDirective):
    """Lists the public names of a module, or those that are given."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        module = importlib.import_module(self.arguments[0])
        chosen = [name for line in self.content for name in line.split()] or documented(module)
        lines = [
            f".. currentmodule:: {module.__name__}",
            "",
            ".. autosummary::",
            "   :nosignatures:",
        ]
        lines += ["", *(f"   {name}" for name in chosen), ""]
        for name in chosen:
            value = getattr(module, name)
            if isinstance(value, type):
                kind = "exception" if issubclass(value, BaseException) else "class"
                lines += [f".. auto{kind}:: {name}", "   :members:", ""]
            else:
                lines += [f".. autofunction:: {name}", ""]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=False)


def documented(module: Any) -> list[str]:
    """The functions and classes among a module's public names."""
    return sorted(
        (name for name in module.__all__ if callable(getattr(module, name))), key=str.lower
    )


def shortened(
    _app: Sphinx, _what: str, name: str, _object: Any, _options: Any, signature: str, result: str
) -> tuple[str, str] | None:
    """A signature without what its readers don't need; a Tensor is not made by its class."""
    if not signature:
        return None
    if name == "telegrad.Tensor":
        return "", result
    signature = re.sub(r",? ?\*\*unknown: \S*Never", "", signature)
    signature = re.sub(r": (~?typing\.)?Any = ", "=", signature)
    signature = re.sub(r": (~?typing\.)?Any(?=[,)])", "", signature)
    return signature, result


def resolved_error(
    app: Sphinx, environment: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """An error that a docstring names without its module."""
    target = f"telegrad.errors.{node.get('reftarget')}"
    domain = environment.get_domain("py")
    if node.get("refdomain") != "py" or target not in domain.objects:  # type: ignore[attr-defined]
        return None
    return domain.resolve_xref(
        environment, node["refdoc"], app.builder, "exc", target, node, content
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Makes the directive known."""
    app.setup_extension("sphinx.ext.autodoc")
    app.add_directive("names", Names)
    app.connect("autodoc-process-signature", shortened)
    app.connect("missing-reference", resolved_error)
    return {"parallel_read_safe": True}
