"""The plan of a pass: what every worker in it is told by those that ask it to take part."""

import msgspec

from telegrad.distributed.contexts.message_nodes import Path
from telegrad.rpc.wire.conversion import converter


class PassPlan(msgspec.Struct, array_like=True, frozen=True):
    """What every worker in a pass is told about it."""

    context_id: int
    pass_id: int
    path: Path
    """Where in the program the pass was started, as for a message."""
    keep_graph: bool
    recorded: bool
    targets: list[tuple[int, int]] | None
    """(owner, reference) for each input that lives elsewhere; None if all leaves are wanted."""
    check_nan: bool = False
    """Whether the pass ends at the first NaN: it began under ``detect_anomaly``."""
    enclosing: tuple[int, ...] = ()
    """The passes that this one was started for, by their hooks or rules."""
    captures: bool = False
    """Whether gradients are asked for, not accumulated: the nodes of leaves don't run."""


as_plan = converter(PassPlan)
