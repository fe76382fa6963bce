"""Small pictures as SVG text, without a plotting library: a chart of lines, a graph in lanes."""

from telegrad.pictures.chart import line_chart
from telegrad.pictures.lanes import lane_graph

__all__ = ["lane_graph", "line_chart"]
