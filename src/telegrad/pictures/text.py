"""Text inside of SVG."""

import re
from html import escape

_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
"""What XML can't hold, not even escaped."""


def written(text: str) -> str:
    """Return the text as XML holds it."""
    return escape(_FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text))


def shortened(text: str, length: int) -> str:
    """Return the text, or as much of its beginning as fits, with a sign that there is more."""
    return text if len(text) <= length else text[: length - 1] + "\N{HORIZONTAL ELLIPSIS}"
