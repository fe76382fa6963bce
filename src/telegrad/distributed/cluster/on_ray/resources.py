"""The resources that workers ask Ray for: checked, in Ray's form, and in words."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from telegrad.errors import UsageError
from telegrad.rpc.security.introduction import check_worker_name

_RESOURCES: Final = ("num_cpus", "num_gpus", "memory", "resources")


def chosen_resources(workers: Any, me: str) -> dict[str, dict[str, Any]]:
    """Return the resources of each worker by its name, as a user gave them."""
    if isinstance(workers, str) or not isinstance(workers, (Mapping, Sequence)):
        raise UsageError(
            'expected workers like {"ps": {"num_cpus": 1}} or ["ps", "trainer"], got '
            f"{workers!r}"
        )
    if not isinstance(workers, Mapping):
        twice = sorted({name for name in workers if list(workers).count(name) > 1})
        if twice:
            raise UsageError(f"expected different names, {', '.join(twice)} came twice")
        workers = {name: {} for name in workers}
    if me in workers:
        raise UsageError(
            f"expected different names, {me} came twice; this program is {me!r} itself, me=... "
            "gives it another name"
        )
    return {
        check_worker_name(name): checked_resources(name, given) for name, given in workers.items()
    }


def checked_resources(name: str, given: Any) -> dict[str, Any]:
    """Return the resources of a worker, one CPU if none is named."""
    unknown = sorted(set(given) - set(_RESOURCES)) if isinstance(given, Mapping) else [repr(given)]
    if unknown:
        raise UsageError(
            f"expected {', '.join(_RESOURCES)} as resources of {name!r}, got {', '.join(unknown)}"
        )
    return {"num_cpus": 1, **given}


def bundle(given: Mapping[str, Any]) -> dict[str, float]:
    """Return what Ray has to reserve for a worker."""
    wanted = {
        "CPU": given.get("num_cpus", 0),
        "GPU": given.get("num_gpus", 0),
        "memory": given.get("memory", 0),
        **given.get("resources", {}),
    }
    needs = {kind: amount for kind, amount in wanted.items() if amount}
    return needs or {"CPU": 0.001}


def in_words(resources: Mapping[str, Mapping[str, Any]]) -> str:
    """Return, in words, who asks for what."""
    return ", ".join(f"{name!r} ({bundle(needs)})" for name, needs in resources.items())


def rounded(resources: Mapping[str, float]) -> dict[str, float]:
    """Return Ray's resources, without those that stand for nodes and groups."""
    wanted = {k: v for k, v in resources.items() if not k.startswith(("node:", "bundle_group"))}
    return {
        kind: round(amount, 2) for kind, amount in sorted(wanted.items()) if "_group_" not in kind
    }
