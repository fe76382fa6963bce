"""The plan of a pass, which every request of the pass carries."""

import msgspec

from telegrad.distributed.contexts.message_nodes import Path
from telegrad.rpc.wire.conversion import converter


class PassPlan(msgspec.Struct, array_like=True, frozen=True):
    """The facts about a pass that every worker in it needs."""

    context_id: int
    pass_id: int
    path: Path
    """The place in the program where the pass was started, as for a message."""
    keep_graph: bool
    recorded: bool
    targets: list[tuple[int, int]] | None
    """(owner, reference) of each input that is not at the root; None if all leaves are wanted."""
    check_nan: bool = False
    """Whether the pass fails at the first NaN, since it began under ``detect_anomaly``."""
    enclosing: tuple[int, ...] = ()
    """The passes whose hooks or rules started this one, outermost first."""
    captures: bool = False
    """Whether gradients are returned, not accumulated: the nodes of leaves don't run."""


as_plan = converter(PassPlan)
