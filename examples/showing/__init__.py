"""What the examples show while they train: a progress bar, and a picture of the losses.

In a terminal (and with ``rich`` installed) a bar; elsewhere a plain line now and then.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from telegrad.pictures import line_chart

__all__ = ["arguments", "progress", "save_picture"]


def arguments(description: str, has_device: bool = False) -> argparse.Namespace:
    """The options of every example; some can compute on another device."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="a few steps, to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("build/examples"), help="for pictures")
    if has_device:
        parser.add_argument("--device", default="cpu", help="where to compute: cpu, cuda, cuda:1")
    return parser.parse_args()


@contextmanager
def progress(title: str, steps: int) -> Iterator[Any]:
    """Gives ``advance(loss)``, to be called after each step."""
    if sys.stdout.isatty():
        try:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        except ImportError:
            pass
        else:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed}/{task.total}  loss {task.fields[loss]:.4f}"),
                TimeElapsedColumn(),
            )
            with Progress(*columns) as bar:
                task = bar.add_task(title, total=steps, loss=float("nan"))
                yield lambda loss: bar.update(task, advance=1, loss=loss)
            return
    done = 0

    def advance(loss: float) -> None:
        nonlocal done
        done += 1
        if done == steps or done % max(1, steps // 5) == 0:
            print(f"{title}: step {done} of {steps}, loss {loss:.4f}", flush=True)

    yield advance


def save_picture(path: Path, title: str, lines: Mapping[str, Sequence[float]]) -> None:
    """Draws losses by step, and says where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(line_chart(lines, title=title, x_label="step", y_label="loss", log_y=True))
    print(f"picture: {path}")
