"""Pictures as SVG text: well-formed, with everything they were given, inside their frame."""

import math
import re
import xml.etree.ElementTree as ElementTree

import pytest

from telegrad.pictures import lane_graph, line_chart
from telegrad.pictures.lanes import Dot

SVG = "{http://www.w3.org/2000/svg}"


def chart(lines, **options):
    text = line_chart(lines, title="A <title>", x_label="step", y_label="loss & more", **options)
    return ElementTree.fromstring(text)


def texts(tree):
    return ["".join(each.itertext()) for each in tree.iter(f"{SVG}text")]


def points(tree):
    return [
        [tuple(map(float, pair.split(","))) for pair in each.get("points").split()]
        for each in tree.iter(f"{SVG}polyline")
    ]


@pytest.mark.parametrize(
    ("count", "steps"),
    [
        (1, ["1"]),
        (4, ["1", "2", "3", "4"]),
        (54, ["1", "20", "40"]),
        (263, ["1", "100", "200"]),
        (1000, ["1", "200", "400", "600", "800", "1000"]),
    ],
)
def test_steps_are_named_by_round_numbers(count, steps):
    labels = texts(chart({"line": [50.0] * count}))
    first = labels.index("1")
    assert labels[first : first + len(steps)] == steps


def test_a_chart_has_its_title_labels_and_a_name_for_each_line():
    tree = chart({"one": [1.0, 2.0], "two": [2.0, 1.0]})
    assert {"A <title>", "step", "loss & more", "one", "two"} <= set(texts(tree))
    assert len(points(tree)) == 2


def test_greater_values_are_higher_and_later_ones_further_right():
    ((first, second, third),) = points(chart({"line": [1.0, 3.0, 2.0]}))
    assert first[0] < second[0] < third[0]
    assert second[1] < third[1] < first[1]
    assert all(0 <= x <= 720 and 0 <= y <= 400 for x, y in (first, second, third))


def test_a_logarithmic_axis_has_equal_steps_for_equal_factors_and_round_labels():
    tree = chart({"line": [0.01, 0.1, 1.0, 10.0]}, log_y=True)
    ((a, b, c, d),) = points(tree)
    assert a[1] - b[1] == pytest.approx(b[1] - c[1], abs=0.2)
    assert b[1] - c[1] == pytest.approx(c[1] - d[1], abs=0.2)
    assert {"0.01", "0.1", "1", "10"} <= set(texts(tree))


def test_less_than_a_few_powers_of_ten_are_divided_at_two_and_five():
    labels = texts(chart({"line": [0.3, 2.4]}, log_y=True))
    assert [label for label in labels if re.fullmatch(r"[\d.]+", label)][:3] == ["0.5", "1", "2"]


def test_less_than_a_power_of_ten_is_divided_at_round_numbers():
    labels = texts(chart({"line": [4.4, 1.6]}, log_y=True))
    assert [label for label in labels if re.fullmatch(r"[\d.]+", label)][:3] == ["2", "3", "4"]


def test_a_line_shows_below_one_that_is_the_same_and_no_line_crosses_a_name():
    tree = chart({"one": [1.0, 2.0], "two": [1.0, 2.0]})
    below, above = tree.iter(f"{SVG}polyline")
    assert float(below.get("stroke-width")) > float(above.get("stroke-width"))
    drawn = list(tree)
    names = [each for each in drawn if each.text in ("one", "two")]
    assert len(names) == 2
    assert all(drawn.index(name) > drawn.index(above) for name in names)
    assert all(name.get("paint-order") == "stroke" for name in names)


@pytest.mark.parametrize("log_y", [False, True])
def test_a_narrow_range_still_has_labels(log_y):
    labels = texts(chart({"line": [1.01, 1.02, 1.03]}, log_y=log_y))
    assert len([label for label in labels if re.fullmatch(r"1\.0\d+", label)]) >= 2


def test_values_that_cannot_be_drawn_leave_a_gap():
    tree = chart({"line": [1.0, 2.0, math.nan, 3.0, 1.0, 2.0, math.inf, 1.0]})
    assert [len(each) for each in points(tree)] == [2, 3, 1]
    assert len(list(tree.iter(f"{SVG}circle"))) == 1
    tree = chart({"line": [1.0, 0.0, -1.0, 2.0]}, log_y=True)
    assert [len(each) for each in points(tree)] == [1, 1]
    assert len(points(chart({"line": [3.0]}))[0]) == 1
    with pytest.raises(ValueError, match="at least one finite value"):
        chart({"line": [math.nan]})


def graph():
    dots = {
        "loss": Dot("main", "Sum", "op"),
        "recv": Dot("main", "from b", "recv"),
        "send": Dot("b", "to main", "send"),
        "w": Dot("b", "a <leaf> with a long name", "leaf"),
        "v": Dot("b", "v", "leaf"),
    }
    edges = [("loss", "recv"), ("send", "w"), ("send", "v")]
    return dots, edges, [("recv", "send")]


def test_a_graph_has_a_box_for_each_node_a_lane_for_each_worker_and_its_arrows():
    dots, edges, jumps = graph()
    tree = ElementTree.fromstring(lane_graph(dots, edges, jumps, title="t & t"))
    assert {"t & t", "main", "b", "Sum", "from b", "to main", "v"} <= set(texts(tree))
    arrows = [each for each in tree.iter(f"{SVG}path") if each.get("marker-end")]
    assert len(arrows) == len(edges) + len(jumps)
    assert sum(each.get("stroke-dasharray") is not None for each in arrows) == len(jumps)


def test_arrows_lead_to_the_right_and_boxes_do_not_overlap():
    dots, edges, jumps = graph()
    tree = ElementTree.fromstring(lane_graph(dots, edges, jumps, title="t"))
    for each in tree.iter(f"{SVG}path"):
        if each.get("marker-end"):
            numbers = [float(n) for n in re.findall(r"[\d.]+", each.get("d"))]
            assert numbers[0] < numbers[-2]
    corners = [
        (each.get("x"), each.get("y")) for each in tree.iter(f"{SVG}rect") if each.get("rx") == "6"
    ]
    assert len(corners) == len(dots) == len(set(corners))


def test_a_long_chain_is_drawn_without_recursion():
    dots = {i: Dot("a", str(i), "op") for i in range(3000)}
    text = lane_graph(dots, [(i, i + 1) for i in range(2999)], [], title="long")
    assert text.count("marker-end") == 2999


def test_a_graph_of_nothing_is_an_empty_picture():
    assert ElementTree.fromstring(lane_graph({}, [], [], title="nothing")).tag == f"{SVG}svg"


def test_a_line_that_stays_at_a_large_value_is_drawn_in_the_middle():
    ((first, last),) = points(chart({"line": [1e20, 1e20]}))
    assert first[1] == last[1] == 198


@pytest.mark.parametrize(
    "line",
    [[1e308, -1e308, 1.0], [1.7e308, 1.0], [5e-324, 1e-323], [1e-15, 3e-15], [1e299, -1e299]],
)
@pytest.mark.parametrize("log_y", [False, True])
def test_very_large_and_very_small_values_are_drawn_inside_the_frame_or_left_out(line, log_y):
    tree = chart({"line": line, "other": [1.0]}, log_y=log_y)
    assert all(44 <= y <= 352 for each in points(tree) for _, y in each)


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        ([2.3021, 2.3029], ["2.3022", "2.3024", "2.3026", "2.3028"]),
        ([1233.0, 1242.5], ["1234", "1236", "1238", "1240", "1242"]),
        ([0.9984, 1.0001], ["0.9985", "0.999", "0.9995", "1"]),
    ],
)
@pytest.mark.parametrize("log_y", [False, True])
def test_close_values_have_labels_with_enough_digits(line, labels, log_y):
    assert texts(chart({"line": line}, log_y=log_y))[1 : 1 + len(labels)] == labels


def test_small_differences_between_small_values_show():
    ((first, second),) = points(chart({"line": [1e-15, 3e-15]}))
    assert first[1] - second[1] > 300


def test_many_powers_of_ten_have_no_more_labels_than_can_be_read():
    labels = texts(chart({"line": [1e-200, 1e200]}, log_y=True))
    assert 3 <= len([label for label in labels if "e" in label and label[0] in "15"]) <= 12


def test_a_line_of_one_value_shows_as_a_dot():
    (dot,) = chart({"line": [3.0], "other": [1.0, 2.0]}).iter(f"{SVG}circle")
    assert float(dot.get("cx")) == 64


def test_characters_that_xml_lacks_are_replaced():
    name = "a\x00b\x1b\ud800"
    assert "a\ufffdb\ufffd\ufffd" in texts(chart({name: [1.0, 2.0]}))
    picture = lane_graph({0: Dot(name, name, "op")}, [], [], title=name)
    assert texts(ElementTree.fromstring(picture)) == ["a\ufffdb\ufffd\ufffd"] * 3


def test_a_long_name_of_a_lane_ends_before_its_boxes_and_a_long_title_inside_the_picture():
    dots = {0: Dot("a worker with a long name", "a node with a long name", "op")}
    tree = ElementTree.fromstring(lane_graph(dots, [], [], title="t" * 100))
    (box,) = (each for each in tree.iter(f"{SVG}rect") if each.get("rx") == "6")
    assert float(box.get("x")) > 16 + 8 * len("a worker with a long name")
    assert float(tree.get("viewBox").split()[2]) > 12 + 8 * 100
    assert "a node with a lo…" in texts(tree)
