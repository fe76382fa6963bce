"""A chart of one or more lines over a common axis, as SVG."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise

from telegrad.pictures.text import shortened, xml_escaped

_COLORS = ("#1f6fb2", "#c8553d", "#3c8d53", "#8a5fb0", "#b58900", "#4d4d4d")
_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 44, 48
_LARGEST = 1e300
"""Numbers as large as this are not drawn, since their differences might overflow."""


def line_chart(
    lines: Mapping[str, Sequence[float]],
    *,
    title: str,
    x_label: str,
    y_label: str,
    log_y: bool = False,
) -> str:
    """Draw lines by name, each over 1, 2, …, as SVG.

    What can't be drawn, such as NaN, leaves a gap.

    Arguments:
        lines: The heights of each line, by its name.
        title: What stands above.
        x_label: What stands below.
        y_label: What stands beside.
        log_y: Whether the vertical axis is logarithmic.

    Raises:
        ValueError: If there is no finite value to draw.

    Examples:
        >>> from telegrad.pictures import line_chart
        >>> line_chart({"loss": [2.0, 1.0, 0.5]}, title="loss", x_label="step", y_label="loss")[:4]
        '<svg'
    """
    heights = [_height(y, log_y) for line in lines.values() for y in line if _is_drawn(y, log_y)]
    if not heights:
        raise ValueError("expected at least one finite value to draw, got none")
    low, high = _range(heights)
    longest = max(len(line) for line in lines.values())

    def at(i: int, y: float) -> tuple[float, float]:
        x = _LEFT + (_WIDTH - _LEFT - _RIGHT) * (i / max(1, longest - 1))
        down = (high - _height(y, log_y)) / (high - low)
        return x, _TOP + (_HEIGHT - _TOP - _BOTTOM) * down

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<text x="{_WIDTH / 2}" y="24" text-anchor="middle" font-size="15">'
        f"{xml_escaped(title)}</text>",
    ]
    ticks = _log_ticks(low, high) if log_y else _ticks(low, high)
    for tick, label in zip(ticks, _labels([10**tick for tick in ticks] if log_y else ticks)):
        y = _TOP + (_HEIGHT - _TOP - _BOTTOM) * (high - tick) / (high - low)
        parts.append(
            f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
        )
    below = f'y="{_HEIGHT - _BOTTOM + 18}" text-anchor="middle"'
    lowest = 10**low if log_y else low
    for step in _steps(longest):
        parts.append(f'<text x="{at(step - 1, lowest)[0]:.1f}" {below}>{step}</text>')
    names = []
    for position, (name, line) in enumerate(lines.items()):
        color = _COLORS[position % len(_COLORS)]
        # Wider than the lines drawn over it, so that it shows where they coincide.
        width = 1.8 + 1.6 * (len(lines) - 1 - position)
        for is_drawn, run in groupby(enumerate(line), lambda each: _is_drawn(each[1], log_y)):
            if is_drawn:  # Otherwise a gap: a line across would show values that are not there.
                parts += _curve([at(i, y) for i, y in run], color, width)
        names.append(_name(name, position, color))
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    parts += [
        *names,  # over all lines
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{_HEIGHT - 10}" text-anchor="middle">'
        f"{xml_escaped(x_label)}</text>",
        f'<text transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">'
        f"{xml_escaped(y_label)}</text>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _range(heights: Sequence[float]) -> tuple[float, float]:
    """Return the lowest and the highest, with some distance between them."""
    low, high = min(heights), max(heights)
    size = max(abs(low), abs(high))
    if high - low <= max(1e-12 * size, 1 / _LARGEST):
        # 0.5 would be too little beside a large number.
        margin = max(0.5, 1e-3 * size)
        low, high = low - margin, high + margin
    return low, high


def _curve(points: Sequence[tuple[float, float]], color: str, width: float) -> list[str]:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    drawn = [f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width:.1f}"/>']
    if len(points) == 1:
        # A line of one point has no length.
        ((x, y),) = points
        drawn.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{color}"/>')
    return drawn


def _name(name: str, position: int, color: str) -> str:
    return (
        f'<text x="{_WIDTH - _RIGHT - 4}" y="{_TOP + 16 * (position + 1)}" text-anchor="end" '
        f'fill="{color}" stroke="white" stroke-width="4" paint-order="stroke">'
        f"{xml_escaped(shortened(name, 80))}</text>"
    )


def _is_drawn(y: float, log_y: bool) -> bool:
    return abs(float(y)) < _LARGEST and (y > 1 / _LARGEST or not log_y)


def _height(y: float, log_y: bool) -> float:
    return math.log10(y) if log_y else y


def _ticks(low: float, high: float) -> list[float]:
    """Return about five round numbers between `low` and `high`."""
    rough = (high - low) / 5
    size = 10 ** math.floor(math.log10(rough))
    step = next(s * size for s in (1, 2, 5, 10) if s * size >= rough)
    first = math.ceil(low / step)
    return [i * step for i in range(first, math.floor(high / step) + 1)]


def _labels(values: Sequence[float]) -> list[str]:
    """Return rising values as text, in three digits each, or in up to seven if they are close."""
    gap = min((after - before for before, after in pairwise(values)), default=math.inf)
    texts: list[str] = []
    for digits in range(3, 8):
        texts = [f"{value:.{digits}g}" for value in values]
        if all(abs(float(text) - value) < gap / 100 for text, value in zip(texts, values)):
            break
    return texts


def _steps(count: int) -> list[int]:
    """Return the labels for so many steps: the first one, and round numbers after it."""
    if count <= 6:
        return list(range(1, count + 1))
    return [1, *(step for step in map(round, _ticks(2, count)) if step > count / 20)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Return logarithms of round numbers: powers of ten, with 2 and 5 between if they are few."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    powers = powers[:: math.ceil(len(powers) / 12)]
    for digits in ((1,), (1, 2, 5)):
        ticks = [power + math.log10(digit) for power in powers for digit in digits]
        inside = [tick for tick in ticks if low <= tick <= high]
        if len(inside) >= 3:
            return inside
    return [math.log10(value) for value in _ticks(10**low, 10**high)]
