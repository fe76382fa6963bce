"""The distributed graph as a picture: Graphviz DOT, clustered by worker."""

import shutil
import subprocess
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

from telegrad.autograd.roots import listed, node_of
from telegrad.distributed import frameworks
from telegrad.distributed.tools.context_view import GraphNode, describe_graph, gather
from telegrad.errors import UsageError
from telegrad.pictures.lanes import Dot, lane_graph
from telegrad.tensors import Tensor

_LOOKS = {
    "leaf": 'shape=box, style="rounded,filled", fillcolor="#d7ecd9"',
    "send": 'shape=cds, style=filled, fillcolor="#fde3c8"',
    "recv": 'shape=cds, style=filled, fillcolor="#cfe3f7"',
    "op": "shape=ellipse",
}


class Drawing:
    """A graph as DOT text, and as SVG: by Graphviz if that is installed, else in lanes."""

    def __init__(self, dot: str, lanes: str) -> None:
        self.dot = dot
        self._lanes = lanes

    def __str__(self) -> str:
        return self.dot

    def svg(self) -> str:
        """Return the picture, a lane or cluster for each worker."""
        program = shutil.which("dot")
        if program is None:
            return self._lanes
        command = [program, "-Tsvg"]
        given = self.dot.encode()
        return subprocess.run(command, input=given, check=True, capture_output=True).stdout.decode()

    def save(self, path: str | Path) -> Path:
        """Write a .dot or an .svg file; return its path."""
        target = Path(path)
        if target.suffix not in (".dot", ".svg"):
            raise UsageError(f"expected a path that ends in .dot or .svg, got {target.name!r}")
        # Both formats are UTF-8 by default, whatever the encoding of this system's files.
        text = self.dot if target.suffix == ".dot" else self.svg()
        target.write_text(text, encoding="utf-8")
        return target

    _repr_svg_ = svg


def draw(context_id: int, roots: Tensor | Sequence[Tensor] = ()) -> Drawing:
    """Return a drawing of the graph that a context has recorded: the way gradients go.

    A context knows only what was sent and received. With `roots`, tensors of this worker such as
    the loss, the drawing starts from these.

    Examples:
        >>> with dist_autograd.context() as context_id:
        ...     y = rpc.rpc_sync("ps", tg.square, (tg.tensor(2.0, requires_grad=True),))
        ...     print(dist_autograd.draw(context_id, y).save("graph.svg"))
        graph.svg
    """
    chosen = listed(roots, "roots", frameworks.adopted)
    starts_here = [node_of(root, "roots") for root in chosen]
    found: dict[str, list[Any]] = gather(context_id, describe_graph, starts_here)
    lines = ["digraph telegrad {", "  rankdir=LR; node [fontname=sans, fontsize=10];"]
    ends: dict[tuple[str, int], str] = {}
    starts: list[tuple[str, str, int]] = []
    dots: dict[Hashable, Dot] = {}
    edges: list[tuple[Hashable, Hashable]] = []
    jumps: list[tuple[Hashable, Hashable]] = []
    for position, (worker, rows) in enumerate(found.items()):
        lines.append(f"  subgraph cluster_{position} {{")
        lines.append(f'    label="{_escaped(worker)}"; style=rounded; color=gray; fontname=sans;')
        for row in rows:
            node = GraphNode(*row)
            name = f"w{position}_{node.number}"
            lines.append(f'    {name} [label="{_escaped(node.name)}", {_LOOKS[node.kind]}];')
            lines.extend(f"    {name} -> w{position}_{edge};" for edge in node.edges)
            dots[name] = Dot(worker, node.name, node.kind)
            edges.extend((name, f"w{position}_{edge}") for edge in node.edges)
            if node.kind == "send":
                ends[worker, node.message_id] = name
            elif node.kind == "recv":
                starts.append((name, node.peer, node.message_id))
        lines.append("  }")
    for name, peer, message_id in starts:
        end = ends.get((peer, message_id))
        if end is not None:
            lines.append(f'  {name} -> {end} [style=dashed, color="#b35900", penwidth=1.5];')
            jumps.append((name, end))
    lines.append("}")
    title = f"context {context_id}: the way gradients go"
    return Drawing("\n".join(lines) + "\n", lane_graph(dots, edges, jumps, title=title))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
