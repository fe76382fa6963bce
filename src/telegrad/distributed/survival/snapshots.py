"""Snapshots, kept in this process's memory, in a peer's, or in a directory.

A snapshot is the state of all parts after some step, by name. Invariant: an unfinished snapshot is
never used: it gets the name of its step only when it is complete.
"""

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from telegrad.distributed.survival.state_tree import joined, taken_apart
from telegrad.errors import PeerError, UsageError, WorkerLost
from telegrad.rpc.current import current_worker
from telegrad.rpc.references.rref import RRef
from telegrad.serialization import load, save

_KEPT: Final = 2
_REST: Final = "rest.json"
_ARRAYS: Final = "arrays.safetensors"


class Snapshots(Protocol):
    """A place for snapshots."""

    def save(self, step: int, states: Mapping[str, Any]) -> None:
        """Save the states after a step."""

    def newest(self) -> tuple[int, Mapping[str, Any]] | None:
        """Return the last saved step and the states after it; None if there is none."""


class MemorySnapshots:
    """The last snapshot, in this process."""

    def __init__(self) -> None:
        self._kept: tuple[int, Mapping[str, Any]] | None = None

    def save(self, step: int, states: Mapping[str, Any]) -> None:
        self._kept = step, states

    def newest(self) -> tuple[int, Mapping[str, Any]] | None:
        return self._kept


class PeerSnapshots:
    """The last snapshot, in the memory of another worker."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._kept: tuple[int, RRef] | None = None

    def save(self, step: int, states: Mapping[str, Any]) -> None:
        arrays = {part: taken_apart(state) for part, state in states.items()}
        # The old one is dropped only when the new one is there.
        self._kept = step, current_worker().rpc_sync(self._peer, _hold, (arrays,))

    def newest(self) -> tuple[int, Mapping[str, Any]] | None:
        if self._kept is None:
            return None
        step, reference = self._kept
        try:
            arrays = reference.to_here()
        except PeerError as error:
            raise WorkerLost(
                f"the snapshot of step {step} went with worker {self._peer!r}, which kept it: keep "
                "snapshots where no part is, or in a directory"
            ) from error
        return step, {part: joined(*state) for part, state in arrays.items()}


def _hold(arrays: Any) -> RRef:
    return current_worker().make_rref(arrays)


class SnapshotDirectory:
    """Snapshots in a directory: a folder of safetensors and JSON for each of the last two steps."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)

    def save(self, step: int, states: Mapping[str, Any]) -> None:
        target = self.path / f"step-{step:08d}"
        unseen = self.path / f".{target.name}.{secrets.token_hex(4)}"
        try:
            for part, state in states.items():
                folder = unseen / part
                folder.mkdir(parents=True)
                arrays, rest = taken_apart(state)
                save(arrays, folder / _ARRAYS)
                _write(folder / _REST, json.dumps(rest))
            if target.exists():
                shutil.rmtree(target)
            os.rename(unseen, target)
            _sync(self.path)
        finally:
            shutil.rmtree(unseen, ignore_errors=True)
        for old in self._folders()[:-_KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def newest(self) -> tuple[int, Mapping[str, Any]] | None:
        folders = self._folders()
        if not folders:
            return None
        found = folders[-1]
        states = {}
        try:
            for folder in sorted(found.iterdir()):
                rest = json.loads((folder / _REST).read_text())
                states[folder.name] = joined(load(folder / _ARRAYS), rest)
        except (OSError, ValueError, KeyError, UsageError) as error:
            raise UsageError(
                f"the snapshot {found} can't be read ({error}): remove it, and the one before is "
                "used, if there is one"
            ) from error
        return int(found.name.removeprefix("step-")), states

    def _folders(self) -> list[Path]:
        return sorted(self.path.glob("step-*"))


def _write(path: Path, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def snapshots_in(place: Any, workers: list[str]) -> Snapshots:
    """Return the snapshots at a place that a program names: a worker, a path, or None for here."""
    if place is None:
        return MemorySnapshots()
    if isinstance(place, str) and place in workers:
        return PeerSnapshots(place)
    if isinstance(place, (str, os.PathLike)):
        return SnapshotDirectory(place)
    if hasattr(place, "save") and hasattr(place, "newest"):
        kept: Snapshots = place
        return kept
    raise UsageError(
        "expected a directory's path, a worker's name or None as the place of snapshots, got a "
        f"{type(place).__name__}"
    )
