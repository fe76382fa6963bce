"""A graph whose nodes lie in lanes, drawn from left to right, as SVG."""

from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from telegrad.pictures.text import shortened, xml_escaped

_FILLS = {"leaf": "#d7ecd9", "send": "#fde3c8", "recv": "#cfe3f7", "op": "#f4f4f4"}
_JUMP = 'stroke="#b35900" stroke-dasharray="5 3" stroke-width="1.6"'
_COLUMN, _ROW, _BOX_WIDTH, _BOX_HEIGHT, _MARGIN = 128, 40, 108, 26, 90


class Dot(NamedTuple):
    """One node: its lane, its text and what kind it is."""

    lane: str
    text: str
    kind: str


def lane_graph(
    dots: Mapping[Hashable, Dot],
    edges: Sequence[tuple[Hashable, Hashable]],
    jumps: Sequence[tuple[Hashable, Hashable]],
    *,
    title: str,
) -> str:
    """Draw nodes in lanes as SVG.

    Arguments:
        dots: The nodes by key.
        edges: Pairs of keys, joined within a lane.
        jumps: Pairs of keys, joined by a dashed line from one lane to another.
        title: What stands above.

    Examples:
        >>> from telegrad.pictures import lane_graph
        >>> from telegrad.pictures.lanes import Dot
        >>> lane_graph({1: Dot("main", "add", "op")}, [], [], title="graph")[:4]
        '<svg'
    """
    columns = _columns(dots, [*edges, *jumps])
    rows: dict[Hashable, int] = {}
    taken: dict[tuple[str, int], int] = {}
    for key, dot in dots.items():
        place = (dot.lane, columns[key])
        rows[key] = taken.get(place, 0)
        taken[place] = rows[key] + 1
    lanes = list(dict.fromkeys(dot.lane for dot in dots.values()))
    heights = {
        lane: max(count for (name, _), count in taken.items() if name == lane) for lane in lanes
    }
    tops: dict[str, float] = {}
    top = 48.0
    for lane in lanes:
        tops[lane] = top
        top += heights[lane] * _ROW + 24
    # Wide enough, for common letters, for the names of lanes before the boxes and the title above.
    margin = max(_MARGIN, 28 + 9 * max(map(len, lanes), default=0))
    width = margin + (max(columns.values(), default=0) + 1) * _COLUMN + 16
    width = max(width, 24 + 9 * len(title))

    def at(key: Hashable) -> tuple[float, float]:
        x = margin + columns[key] * _COLUMN
        return x, tops[dots[key].lane] + 12 + rows[key] * _ROW

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top:.0f}" '
        'font-family="sans-serif" font-size="11">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#555"/></marker></defs>',
        f'<rect width="{width}" height="{top:.0f}" fill="white"/>',
        f'<text x="12" y="24" font-size="15">{xml_escaped(title)}</text>',
    ]
    for lane in lanes:
        height = heights[lane] * _ROW + 12
        parts.append(
            f'<rect x="6" y="{tops[lane]}" width="{width - 12}" height="{height}" rx="8" '
            f'fill="#fafafa" stroke="#ccc"/><text x="16" y="{tops[lane] + height / 2 + 4}" '
            f'font-size="13" font-weight="bold">{xml_escaped(lane)}</text>'
        )
    parts += [_arrow(at(start), at(end), 'stroke="#555"') for start, end in edges]
    parts += [_arrow(at(start), at(end), _JUMP) for start, end in jumps]
    for key, dot in dots.items():
        x, y = at(key)
        parts.append(
            f'<rect x="{x}" y="{y}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="6" '
            f'fill="{_FILLS.get(dot.kind, "#fff")}" stroke="#888"/><text x="{x + _BOX_WIDTH / 2}" '
            f'y="{y + 17}" text-anchor="middle">{xml_escaped(shortened(dot.text, 17))}</text>'
        )
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _arrow(start: tuple[float, float], end: tuple[float, float], look: str) -> str:
    """Draw from the right side of one box to the left side of another, given by their corners."""
    x1, y1 = start[0] + _BOX_WIDTH, start[1] + _BOX_HEIGHT / 2
    x2, y2 = end[0], end[1] + _BOX_HEIGHT / 2
    bend = (x1 + x2) / 2
    path = f"M{x1} {y1} C{bend} {y1} {bend} {y2} {x2} {y2}"
    return f'<path d="{path}" fill="none" marker-end="url(#tip)" {look}/>'


def _columns(
    dots: Mapping[Hashable, Dot], edges: Sequence[tuple[Hashable, Hashable]]
) -> dict[Hashable, int]:
    """Return each node's column: one more than the largest of its predecessors'."""
    missing = dict.fromkeys(dots, 0)
    following: dict[Hashable, list[Hashable]] = {key: [] for key in dots}
    for start, end in edges:
        missing[end] += 1
        following[start].append(end)
    columns = dict.fromkeys(dots, 0)
    ready = [key for key, count in missing.items() if not count]
    while ready:
        key = ready.pop()
        for end in following[key]:
            columns[end] = max(columns[end], columns[key] + 1)
            missing[end] -= 1
            if not missing[end]:
                ready.append(end)
    return columns
