"""Tables as text and as HTML; the first row has the titles."""

import html
from collections.abc import Sequence

Rows = Sequence[Sequence[str]]


def text_table(rows: Rows) -> str:
    """Return the rows as lines: the first column is left-aligned, the others right-aligned."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths))
        )
        for row in rows
    )


def html_table(rows: Rows, caption: str = "") -> str:
    """Return the rows as a table, for notebooks."""
    title, *rest = rows
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in title)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rest
    )
    said = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{said}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
