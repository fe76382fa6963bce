"""What goes wrong in a campaign: each fault befalls one worker, lasts for a while and is undone."""

import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial

from tests.soak.cluster import ME, OTHERS, Cluster
from tests.soak.journal import Journal
from tests.soak.operations import TYPED, HalfPublished, strike_home, strike_in_pass
from tests.soak.worker import LOST_AFTER, close_connections

from telegrad.distributed import rpc
from telegrad.errors import PeerError

__all__ = ["Faults"]

SURVIVOR = OTHERS[-1]
"""Never killed: what it would leak while others come and go is seen in it, and in this process."""


class Faults:
    """Faults of one thread's choice; `taken` holds the workers that something befalls already."""

    def __init__(
        self, cluster: Cluster, journal: Journal, seed: str, taken: set[str], lock: threading.Lock
    ) -> None:
        self._cluster = cluster
        self._journal = journal
        self._rng = random.Random(seed)
        self._taken = taken
        self._lock = lock
        self._kinds: dict[str, tuple[int, Callable[[str], None]]] = {
            "kill": (3, self._kill),
            "kill in a pass": (2, partial(self._kill_aimed, strike_in_pass)),
            "kill of a home": (2, partial(self._kill_aimed, strike_home)),
            "stop": (3, self._stop),
            "long stop": (2, self._stop_for_long),
            "freeze of this process": (1, self._freeze_me),
            "closed connections": (3, self._close_connections),
        }
        if cluster.network is not None:
            self._kinds["cut"] = (3, self._cut)
            self._kinds["long cut"] = (2, self._cut_for_long)
            if cluster.network.bad_link:
                self._kinds[f"bad link ({cluster.network.bad_link})"] = (3, self._impair)

    def pause(self) -> float:
        """Return how many seconds to wait for the next fault."""
        return self._rng.expovariate(1 / 2)

    def strike(self) -> None:
        """Do something to a worker to which nothing is being done, and undo it."""
        kinds = list(self._kinds)
        kind = self._rng.choices(kinds, [self._kinds[each][0] for each in kinds])[0]
        candidates = [ME] if kind == "freeze of this process" else list(OTHERS)
        if "cut" in kind or "bad" in kind or "closed" in kind:
            candidates = [ME, *OTHERS]
        elif "kill" in kind:
            candidates.remove(SURVIVOR)
        with self._lock:
            candidates = [name for name in candidates if name not in self._taken]
            if not candidates:
                return
            victim = self._rng.choice(candidates)
            self._taken.add(victim)
        try:
            self._journal.write("fault", kind=kind, worker=victim)
            self._kinds[kind][1](victim)
        finally:
            with self._lock:
                self._taken.discard(victim)

    def _short(self) -> float:
        return self._rng.uniform(0.05, 0.6 * LOST_AFTER)

    def _long(self) -> float:
        return self._rng.uniform(1.1 * LOST_AFTER, 2 * LOST_AFTER)

    def _kill_aimed(self, strike: Callable[[str, list[str]], None], victim: str) -> None:
        others = self._rng.sample([name for name in (ME, *OTHERS) if name != victim], 2)
        try:
            strike(victim, others)
        except HalfPublished as error:
            self._journal.write("half", kind=strike.__name__, worker=victim, text=str(error))
        except TYPED:
            pass
        # If it did not come so far.
        self._kill(victim)

    def _kill(self, victim: str) -> None:
        if self._cluster.rank(victim) == 0:
            self._journal.write("fault", kind="kill of rank 0", worker=victim)
        self._cluster.kill(victim)
        time.sleep(self._rng.uniform(0.0, 1.5))
        self._journal.write("fault", kind="restart", worker=victim)
        if not self._cluster.restart(victim):
            self._journal.write("gone", worker=victim, why="started again, it never answered")

    def _stop(self, victim: str) -> None:
        self._stop_for(victim, self._short())

    def _stop_for_long(self, victim: str) -> None:
        self._stop_for(victim, self._long())

    def _stop_for(self, victim: str, seconds: float) -> None:
        self._cluster.signal(victim, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            self._cluster.signal(victim, signal.SIGCONT)

    def _freeze_me(self, victim: str) -> None:
        seconds = self._rng.choice((self._short, self._long))()
        subprocess.run(
            ["/bin/sh", "-c", f"kill -STOP $PPID; sleep {seconds:.2f}; kill -CONT $PPID"],
            check=True,
        )

    def _close_connections(self, victim: str) -> None:
        try:
            rpc.rpc_sync(victim, close_connections, (self._rng.randrange(1 << 30),))
        except PeerError:
            pass  # It closed that which the answer would have come by.

    def _cut(self, victim: str) -> None:
        self._cut_for(victim, self._short())

    def _cut_for_long(self, victim: str) -> None:
        self._cut_for(victim, self._long())

    def _cut_for(self, victim: str, seconds: float) -> None:
        network = self._cluster.network
        assert network is not None
        network.cut(victim)
        try:
            time.sleep(seconds)
        finally:
            network.heal(victim)

    def _impair(self, victim: str) -> None:
        network = self._cluster.network
        assert network is not None
        network.impair(victim)
        try:
            time.sleep(self._long())
        finally:
            network.restore(victim)
