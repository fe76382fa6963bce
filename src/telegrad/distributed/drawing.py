"""The distributed graph as a picture: Graphviz DOT, clustered by worker."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from telegrad.distributed.viewing import GraphNode, describe_graph, gather
from telegrad.errors import UsageError

__all__ = ["Drawing", "draw"]

_LOOKS = {
    "leaf": 'shape=box, style="rounded,filled", fillcolor="#d7ecd9"',
    "send": 'shape=cds, style=filled, fillcolor="#fde3c8"',
    "recv": 'shape=cds, style=filled, fillcolor="#cfe3f7"',
    "op": "shape=ellipse",
}


class Drawing:
    """DOT text that can be saved, and rendered where Graphviz is installed."""

    def __init__(self, dot: str) -> None:
        self.dot = dot

    def __str__(self) -> str:
        return self.dot

    def save(self, path: str | Path) -> Path:
        """Writes a .dot file as it is; other endings (.svg, .png, .pdf) are Graphviz's work."""
        target = Path(path)
        if target.suffix in (".dot", ".gv"):
            target.write_text(self.dot)
            return target
        program = shutil.which("dot")
        if program is None:
            raise UsageError(
                f"expected Graphviz to be installed to write {target.name}, but there is no `dot` "
                "program; install it, or save as .dot"
            )
        command = [program, f"-T{target.suffix.lstrip('.')}", "-o", str(target)]
        subprocess.run(command, input=self.dot, text=True, check=True)
        return target

    def _repr_svg_(self) -> str | None:
        program = shutil.which("dot")
        if program is None:
            return None
        done = subprocess.run(
            [program, "-Tsvg"], input=self.dot, text=True, check=True, capture_output=True
        )
        return done.stdout


def draw(context_id: int) -> Drawing:
    """The graph that a context has recorded, over all workers: the way gradients go."""
    found: dict[str, list[Any]] = gather(context_id, describe_graph)
    lines = ["digraph telegrad {", "  rankdir=LR; node [fontname=sans, fontsize=10];"]
    ends: dict[tuple[str, int], str] = {}
    starts: list[tuple[str, str, int]] = []
    for position, (worker, rows) in enumerate(found.items()):
        lines.append(f"  subgraph cluster_{position} {{")
        lines.append(f'    label="{_escaped(worker)}"; style=rounded; color=gray; fontname=sans;')
        for row in rows:
            node = GraphNode(*row)
            name = f"w{position}_{node.number}"
            lines.append(f'    {name} [label="{_escaped(node.name)}", {_LOOKS[node.kind]}];')
            lines.extend(f"    {name} -> w{position}_{edge};" for edge in node.edges)
            if node.kind == "send":
                ends[worker, node.message_id] = name
            elif node.kind == "recv":
                starts.append((name, node.peer, node.message_id))
        lines.append("  }")
    for name, peer, message_id in starts:
        end = ends.get((peer, message_id))
        if end is not None:
            lines.append(f'  {name} -> {end} [style=dashed, color="#b35900", penwidth=1.5];')
    lines.append("}")
    return Drawing("\n".join(lines) + "\n")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
