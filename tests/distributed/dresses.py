"""What tensors are dressed in when they are sent: containers, records, objects of other kinds."""

import dataclasses
from collections import namedtuple

import telegrad as tg

__all__ = ["DRESSES", "crossed", "undress"]

Pair = namedtuple("Pair", ["first", "rest"])


@dataclasses.dataclass
class Record:
    values: list
    named: dict


class Reduced:
    """Says itself how it is made again."""

    def __init__(self, values):
        self.values = values

    def __reduce__(self):
        return Reduced, (list(self.values),)


DRESSES = {
    "list": list,
    "dict": lambda values: {f"v{i}": x for i, x in enumerate(values)},
    "pair": lambda values: Pair(values[0], list(values[1:])),
    "record": lambda values: Record(list(values), {"first": values[0]}),
    "reduced": Reduced,
    "nested": lambda values: [(values[0],), {"a": [Reduced(values), values[0]]}],
}


def undress(packed):
    """The values again; what was one tensor where it left is one here."""
    if isinstance(packed, Pair):
        return [packed.first, *packed.rest]
    if isinstance(packed, dict):
        return [packed[f"v{i}"] for i in range(len(packed))]
    if isinstance(packed, Record):
        assert packed.named["first"] is packed.values[0]
        return packed.values
    if isinstance(packed, Reduced):
        return packed.values
    if isinstance(packed[0], tuple):
        inner, first = packed[1]["a"]
        assert inner.values[0] is first is packed[0][0]
        return inner.values
    return list(packed)


def crossed(structure):
    """The same with new tensors, one for each: as after a journey, in one process."""
    new = {}

    def cross(each):
        if isinstance(each, tg.Tensor):
            # The old one is kept, so that no other gets its id.
            return new.setdefault(id(each), (each, each[...]))[1]
        if isinstance(each, Pair):
            return Pair(*map(cross, each))
        if isinstance(each, (list, tuple)):
            return type(each)(map(cross, each))
        if isinstance(each, dict):
            return {key: cross(value) for key, value in each.items()}
        if isinstance(each, Record):
            return Record(cross(each.values), cross(each.named))
        if isinstance(each, Reduced):
            return Reduced(cross(each.values))
        return each

    return cross(structure)
