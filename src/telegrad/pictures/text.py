"""Text inside of SVG."""

import re
from html import escape

_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML can't contain, not even escaped."""


def xml_escaped(text: str) -> str:
    """Return the text escaped for XML."""
    return escape(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text))


def shortened(text: str, length: int) -> str:
    """Return the text, cut to `length` characters with an ellipsis if it is longer."""
    return text if len(text) <= length else text[: length - 1] + "\N{HORIZONTAL ELLIPSIS}"
