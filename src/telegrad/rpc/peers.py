"""The peers of a worker: their sessions, by name and by id."""

import threading

from telegrad.errors import UnknownWorker
from telegrad.rpc.endpoint import Endpoint
from telegrad.rpc.names import UNKNOWN_ID, WorkerInfo
from telegrad.rpc.protocol.session import Session


class Peers:
    """The table of sessions. Its lock guards the table and the sessions in it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        # Others only read it; `enter` adds sessions.
        self.by_name: dict[str, Session] = {}
        self.get = self.by_name.get
        """Return the session of that name, if there is one."""
        self._by_id: dict[int, Session] = {}
        self._past: dict[str, dict[int, None]] = {}
        """The past lives of removed workers, by name."""

    def enter(self, info: WorkerInfo) -> Session:
        """Return the session of a worker, a new one if need be; the caller holds the lock.

        An incarnation that has left is not entered again, whatever it still sends.
        """
        session = self.by_name.get(info.name)
        if session is None:
            session = Session(info, past=self._past.get(info.name))
            if not session.is_past(info.incarnation):
                self.by_name[info.name] = session
        return session

    def tidy(self, session: Session) -> None:
        """Index a session by its present id, and drop a stranger's; the caller holds the lock.

        Otherwise a holder of the key could fill the table under ever new names; ids are few.
        """
        if session.is_stranger and self.by_name.get(session.info.name) is session:
            del self.by_name[session.info.name]
        if self._by_id.get(session.info.id) is not session:
            self._number()

    def _number(self) -> None:
        self._by_id = {
            session.info.id: session
            for session in self.by_name.values()
            if session.info.id != UNKNOWN_ID
        }

    def remove(self, session: Session) -> None:
        """Drop a worker that has left, all its lives for good; the caller holds the lock."""
        if self.by_name.get(session.info.name) is session:
            del self.by_name[session.info.name]
            self._past[session.info.name] = session.past
            self._number()

    def holder_of(self, number: int) -> str | None:
        """Return the name of the worker with that id, if known."""
        session = self._by_id.get(number)
        return None if session is None else session.info.name

    def find(self, to: "str | int | WorkerInfo") -> Session:
        """Return the session of the worker that a name, id or WorkerInfo means."""
        if isinstance(to, WorkerInfo):
            to = to.name
        session = self.by_name.get(to) if isinstance(to, str) else self._by_id.get(to)
        if session is None:
            known = ", ".join(repr(name) for name in sorted(self.by_name))
            raise UnknownWorker(f"there is no worker {to!r}; the workers are {known}")
        return session

    def all(self) -> list[Session]:
        """Return the sessions of all workers, this one included, in the order of ids."""
        with self.lock:
            return sorted(self.by_name.values(), key=lambda each: (each.info.id, each.info.name))

    def endpoints(self) -> list[Endpoint]:
        """Return all current connections."""
        with self.lock:
            return [path for session in self.by_name.values() for path in session.connections()]
