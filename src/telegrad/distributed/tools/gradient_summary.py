"""A summary of a context's gradients, on all workers, to be printed."""

from telegrad.distributed.tools.context_view import GradientRow, describe_gradients, gather
from telegrad.rpc.wire.conversion import converter

_as_rows = converter(dict[str, list[GradientRow]])


class GradientSummary:
    """Names, shapes and norms by worker; printed as a table."""

    def __init__(self, by_worker: dict[str, list[GradientRow]]) -> None:
        self.by_worker = by_worker

    def __str__(self) -> str:
        rows = [("worker", "leaf", "shape", "dtype", "norm")]
        for worker, found in self.by_worker.items():
            rows += [(worker, r.name, str(r.shape), r.dtype, f"{r.norm:.4g}") for r in found]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]
        return "\n".join(lines)

    __repr__ = __str__


def gradients(context_id: int) -> GradientSummary:
    """Return the names, shapes and norms of a context's gradients on every worker.

    Examples:
        >>> x = tg.tensor([3.0, 4.0], requires_grad=True)
        >>> with dist_autograd.context() as context_id:
        ...     dist_autograd.backward(context_id, [rpc.rpc_sync("ps", tg.sum, (x,))])
        ...     print(dist_autograd.gradients(context_id))
        worker  leaf    shape  dtype    norm
        main    leaf 0  (2,)   float32  1.414
    """
    found = gather(context_id, describe_gradients)
    return GradientSummary(_as_rows(found))
