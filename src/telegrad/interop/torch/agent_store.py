"""The key-value store that torchrun's agent serves at MASTER_ADDR and MASTER_PORT."""

from datetime import timedelta
from typing import Any

import torch.distributed

from telegrad.rpc.transport import parse_address


def store_at(address: str) -> Any:
    """Return a client of the store at an address."""
    place = parse_address(address)
    return torch.distributed.TCPStore(  # type: ignore[attr-defined]
        place.host, place.port, is_master=False, timeout=timedelta(seconds=60)
    )
