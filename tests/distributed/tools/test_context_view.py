"""Looking at a context: the table of its gradients, and its graph as a picture."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
from tests.distributed import handlers

import telegrad as tg
from telegrad import nn
from telegrad.distributed import LocalCluster, RemoteModule, autograd, rpc
from telegrad.distributed.tools import graph_drawing
from telegrad.errors import ContextError, DTypeError, GradientError, UsageError

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(["b", "c"]) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def seen(cluster):
    """A pass over three workers, seen while its context lives: main → b → c → b → main."""
    x = tg.tensor(np.array([5.0, 7.0]), requires_grad=True)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.through, (["c"], x))
        loss = tg.sin(y).sum()
        before = autograd.draw(context_id, loss)
        autograd.backward(context_id, [loss])
        return {
            "before": before,
            "after": autograd.draw(context_id, [loss]),
            "rootless": autograd.draw(context_id),
            "table": autograd.gradients(context_id),
        }


def test_the_table_has_every_leafs_shape_and_norm_by_worker(seen):
    by_worker = seen["table"].by_worker
    assert list(by_worker) == ["main", "b", "c"]
    w, x = np.array([2.0, 3.0]), np.array([5.0, 7.0])
    slope = np.cos(w * w * x)
    (mine,), (first,), (second,) = by_worker.values()
    assert mine.norm == pytest.approx(np.linalg.norm(slope * w * w))
    assert first.norm == second.norm == pytest.approx(np.linalg.norm(slope * w * x))
    assert (mine.shape, mine.dtype) == ((2,), "float64")


def test_the_table_is_printed_with_a_line_for_each_leaf(seen):
    lines = str(seen["table"]).splitlines()
    assert lines[0].split() == ["worker", "leaf", "shape", "dtype", "norm"]
    assert [line.split()[0] for line in lines[1:]] == ["main", "b", "c"]
    assert repr(seen["table"]) == str(seen["table"])


def test_parameters_of_a_remote_module_have_their_names(cluster):
    remote = RemoteModule("b", nn.Sequential, (nn.Linear(2, 3), nn.Linear(3, 1)))
    with autograd.context() as context_id:
        loss = remote(tg.ones((1, 2))).sum()
        autograd.backward(context_id, [loss])
        rows = autograd.gradients(context_id).by_worker["b"]
        picture = str(autograd.draw(context_id, loss))
    assert [row.name for row in rows] == [
        f"Sequential.{i}.{name}" for i in (0, 1) for name in ("bias", "weight")
    ]
    assert 'label="weight 3×2"' in picture


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_dot_text_has_every_worker_and_every_message(seen, when):
    dot = str(seen[when])
    assert re.findall(r'^    label="(\w+)";', dot, re.MULTILINE) == ["main", "b", "c"]
    # Two calls, each with what it gave and what it got.
    assert len(re.findall(r"style=dashed", dot)) == 4
    assert sorted(re.findall(r'label="((?:to|from) \w+)"', dot)) == sorted(
        ["to b", "from b", "to main", "from main", "to c", "from c", "to b", "from b"]
    )
    assert dot.count('label="Multiply"') == 2
    assert dot.count('label="Sin"') == 1
    assert dot.count('label="leaf 2"') == 3
    assert dot.startswith("digraph")
    assert dot.rstrip().endswith("}")


def test_every_edge_of_the_dot_text_ends_at_a_node(seen):
    dot = str(seen["before"])
    nodes = set(re.findall(r"^    (w\d+_\d+) \[", dot, re.MULTILINE))
    edges = re.findall(r"(w\d+_\d+) -> (w\d+_\d+)", dot)
    assert len(edges) > 8
    assert {end for edge in edges for end in edge} == nodes


def test_without_roots_the_picture_begins_with_what_was_received(seen):
    assert 'label="Sin"' not in str(seen["rootless"])
    assert str(seen["rootless"]).count("style=dashed") == 4


def test_without_graphviz_the_svg_has_a_lane_for_each_worker(seen, monkeypatch):
    monkeypatch.setattr(graph_drawing.shutil, "which", lambda name: None)
    tree = ElementTree.fromstring(seen["before"].svg())
    texts = [each.text for each in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert {"main", "b", "c", "Sin", "Multiply", "to c", "from c"} <= set(texts)
    dashed = [
        each
        for each in tree.iter("{http://www.w3.org/2000/svg}path")
        if each.get("stroke-dasharray")
    ]
    assert len(dashed) == 4


def test_with_graphviz_it_draws_the_dot_text(seen, monkeypatch, tmp_path):
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\nread line\necho "<svg>$1 $line</svg>"\n')
    program.chmod(0o755)
    monkeypatch.setattr(graph_drawing.shutil, "which", lambda name: str(program))
    assert seen["before"].svg() == "<svg>-Tsvg digraph telegrad {</svg>\n"


def test_a_picture_is_saved_by_the_ending_of_its_name(seen, tmp_path):
    picture = seen["before"]
    assert picture.save(tmp_path / "graph.dot").read_text() == picture.dot
    assert picture.save(str(tmp_path / "graph.svg")).read_text() == picture.svg()
    with pytest.raises(UsageError, match=r"ends in .dot or .svg, got 'graph.png'"):
        picture.save(tmp_path / "graph.png")


def test_names_with_quotes_stay_in_their_quotes(cluster):
    x = tg.tensor([1.0], requires_grad=True)
    x.ensure_meta().name = 'a "b" \\ c'
    with autograd.context() as context_id:
        dot = str(autograd.draw(context_id, x))
    assert 'label="a \\"b\\" \\\\ c 1"' in dot


def test_a_result_of_several_is_shown_by_its_number(cluster):
    x = tg.tensor(np.eye(2), requires_grad=True)
    with autograd.context() as context_id:
        _, values, _ = tg.linalg.svd(x)
        dot = str(autograd.draw(context_id, values.sum()))
    assert 'label="value 1"' in dot
    assert 'label="Svd"' in dot


def test_looking_leaves_nothing_in_the_context(cluster):
    x = tg.tensor(np.array([5.0, 7.0]), requires_grad=True)
    with autograd.context() as context_id:
        y = rpc.rpc_sync("b", handlers.scale, (x,))
        autograd.draw(context_id, y)
        autograd.gradients(context_id)
        assert len(autograd._current_context()._send_functions()) == 1
        autograd.backward(context_id, [y.sum()], mode="fast")
        assert autograd.get_gradients(context_id)[x].tolist() == [2.0, 3.0]


@pytest.mark.parametrize("look", [autograd.draw, autograd.gradients])
def test_an_unknown_context_is_refused(cluster, look):
    with pytest.raises(ContextError, match="got 77; it was never used here"):
        look(77)


def test_roots_that_are_none_are_refused(cluster):
    with autograd.context() as context_id:
        with pytest.raises(DTypeError, match="a Tensor or a sequence of Tensors as roots, got int"):
            autograd.draw(context_id, 3)
        with pytest.raises(GradientError, match="require grad as roots"):
            autograd.draw(context_id, tg.ones(2))


def test_a_picture_is_saved_in_utf_8_whatever_the_system_writes_in(tmp_path):
    script = (
        "import sys; from pathlib import Path\n"
        "from telegrad.distributed.tools.graph_drawing import Drawing\n"
        "picture = Drawing('\\u00e4', '<svg>\\u00e4</svg>')\n"
        "for suffix in ('dot', 'svg'): picture.save(Path(sys.argv[1], f'graph.{suffix}'))\n"
    )
    in_ascii = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PATH": ""}
    command = [sys.executable, "-c", script, str(tmp_path)]
    subprocess.run(command, env={**os.environ, **in_ascii}, check=True)
    assert (tmp_path / "graph.dot").read_bytes() == "ä".encode()
    assert (tmp_path / "graph.svg").read_bytes() == "<svg>ä</svg>".encode()
