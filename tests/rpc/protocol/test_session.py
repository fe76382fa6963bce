"""Every phase with every event, every sequence of them to a depth, and two that face each other."""

import itertools
from collections import deque

import pytest

from telegrad.errors import InternalError
from telegrad.rpc.names import UNKNOWN_ID, WorkerInfo
from telegrad.rpc.protocol.session import TRANSITIONS, Event, Greet, Lost, Phase, Session

GONE = ConnectionError("gone")


class Connection:
    """Stands for a connection: who is at its other end, and the call that is open on it."""

    def __init__(self, incarnation=1, number=UNKNOWN_ID):
        self.peer = WorkerInfo("b", number, incarnation)
        self.settled = 0

    def __repr__(self):
        return f"<of {self.peer.incarnation}, settled {self.settled} times>"


def test_the_table_has_a_row_for_every_event_and_a_column_for_every_phase():
    assert set(TRANSITIONS) == set(Event)
    assert all(set(row) == set(Phase) for row in TRANSITIONS.values())


class Walked:
    """A session, what was opened to it, and the laws that hold after every event."""

    def __init__(self):
        self.session = Session(WorkerInfo("b", 1, 1), "address")
        self.opened = []
        self.generations = []
        self.dialling = None
        self.has_left = False

    def do(self, what):
        before = self.session.connections()
        entered = None
        effects = []
        session = self.session
        match what:
            case "dial":
                self.dialling = self.dialling or object()
                session.dials(self.dialling)
            case "give up":
                if self.dialling is not None:
                    session.stops_dialling(self.dialling)
                self.dialling = None
            case "reach", incarnation:
                # By whoever dials, and by nobody else.
                if session.attempt is None:
                    return
                entered = Connection(incarnation)
                greeting = session.dialled(incarnation)
                if greeting is None:
                    return
                assert isinstance(greeting, Greet)
                assert greeting.place == session.opened
                effects = session.greets(entered)
                session.stops_dialling(self.dialling)
                self.dialling = None
            case "accept", incarnation:
                entered = Connection(incarnation)
                effects = session.accepted(entered)
            case "greet", which, given_up:
                if which < len(self.opened) and self.opened[which] is not session.outgoing:
                    effects = session.greeted(self.opened[which], "", 1, given_up)
            case "break", which:
                if which < len(self.opened):
                    effects = session.broken(self.opened[which], GONE)
            case "name", incarnation:
                effects = session.named(WorkerInfo("b", 1, incarnation), "")
            case "leave":
                effects = session.left(GONE)
                self.has_left = True
        if entered is not None:
            self.opened.append(entered)
        self.check(before, entered, effects)

    def check(self, before, entered, effects):
        session = self.session
        for effect in effects:
            for connection in effect.ended:
                connection.settled += 1
            if isinstance(effect, Lost):
                # What ends with a generation is what was current in it, and nothing later.
                assert set(effect.ended) <= set(before)
                assert effect.generation not in self.generations
                self.generations.append(effect.generation)
                assert {each.peer.incarnation for each in effect.ended} == {effect.who.incarnation}
        assert self.generations == list(range(session.generation))
        current = session.connections()
        # At most one each way, of one incarnation, which is not past.
        assert len(current) == len(set(current)) <= 2
        assert {each.peer.incarnation for each in current} <= {session.info.incarnation}
        assert not current or not session.is_past(session.info.incarnation)
        for connection in self.opened:
            if connection in current:
                assert not connection.settled
            else:
                # Also if its end is heard of again: the second finds nothing open.
                assert connection.settled
        assert (session.phase is Phase.OPEN) == bool(current)
        if session.phase is Phase.LOST:
            assert session.lost is not None or self.has_left
        else:
            assert session.lost is None
        if session.phase is Phase.DIALLING:
            assert session.attempt is not None


EVENTS = [
    "dial",
    "give up",
    ("reach", 1),
    ("reach", 2),
    ("accept", 1),
    ("accept", 2),
    ("greet", 0, 0),
    ("greet", 0, 9),
    ("greet", 1, 0),
    ("greet", 1, 9),
    ("break", 0),
    ("break", 1),
    ("name", 1),
    ("name", 2),
    "leave",
]


def outcome(walked):
    """All that tells one state of a walk from another."""
    session = walked.session
    at = {id(each): index for index, each in enumerate(walked.opened)}
    return (
        session.phase,
        session.info,
        tuple(session.past),
        session.attempt is not None,
        walked.dialling is not None,
        at.get(id(session.outgoing)),
        at.get(id(session.incoming)),
        session.place,
        min(session.opened, 9),
        session.given_up,
        session.lost is None,
        len(walked.opened),
    )


def test_every_sequence_of_events_keeps_the_laws():
    """All sequences, but for those that lead to where another has led before."""
    seen, met = set(), set()
    waiting = deque([()])
    while waiting:
        way = waiting.popleft()
        for event in EVENTS:
            walked = Walked()
            for each in (*way, event):
                met.add((walked.session.phase, each if isinstance(each, str) else each[0]))
                walked.do(each)
            state = outcome(walked)
            if state not in seen and len(walked.opened) <= 4:
                seen.add(state)
                waiting.append((*way, event))
    assert len(seen) > 300
    named = {event if isinstance(event, str) else event[0] for event in EVENTS}
    assert met == set(itertools.product(Phase, named))


def test_all_transitions_of_the_table_are_taken_and_no_other(monkeypatch):
    taken = set()
    step = Session.step

    def note(session, event):
        taken.add((event, session.phase))
        step(session, event)

    monkeypatch.setattr(Session, "step", note)
    test_every_sequence_of_events_keeps_the_laws()
    possible = {
        (event, phase) for event, row in TRANSITIONS.items() for phase, to in row.items() if to
    }
    assert taken == possible


def test_an_event_that_can_not_come_is_told_of():
    with pytest.raises(InternalError, match=r"BREAK can't come for 'b' in Phase\.UNKNOWN"):
        Session(WorkerInfo("b", 1, 1)).step(Event.BREAK)


def test_of_an_incarnation_that_another_has_replaced_nothing_is_new():
    session = Session(WorkerInfo("b", 1, 10), "unix:///old")
    session.given_up = 3
    session.named(WorkerInfo("b", 2, 20), "unix:///new")
    session.named(WorkerInfo("b", 1, 10), "unix:///old")
    assert (session.info, session.address) == (WorkerInfo("b", 2, 20), "unix:///new")
    # The connections of the new one are counted from the first.
    assert session.given_up == 0


def test_one_that_is_dialled_by_another_thread_is_not_dialled_twice():
    session = Session(WorkerInfo("b", 1, 1))
    first, second = object(), object()
    assert session.dials(first)
    assert not session.dials(second)
    session.stops_dialling(second)
    assert session.attempt is first
    session.stops_dialling(first)
    assert session.dials(second)


def test_a_worker_that_was_reached_in_a_later_life_than_the_one_that_calls_is_lost_before():
    """Else the end of what the old life opened would end what is open with the new one."""
    session = Session(WorkerInfo("b", 1, 1))
    old, new = Connection(1), Connection(2)
    session.accepted(old)
    assert session.dials(session)
    assert session.dialled(2) == Greet(1, 0)
    (lost,) = session.greets(new)
    assert lost.ended == (old,)
    session.broken(old, GONE)
    assert session.outgoing is new


@pytest.mark.parametrize("is_greeted", [False, True])
def test_of_two_connections_one_that_was_greeted_on_ends_with_the_other(is_greeted):
    session = Session(WorkerInfo("b", 1, 1))
    mine, theirs = Connection(), Connection()
    assert session.dials(session)
    session.dialled(1)
    session.greets(mine)
    session.accepted(theirs)
    if is_greeted:
        session.greeted(theirs, "", 1, 0)
    (lost,) = session.broken(mine, GONE)
    assert lost.ended == ((mine, theirs) if is_greeted else (mine,))
    assert session.incoming is (None if is_greeted else theirs)


# Two sessions facing each other.


class Wire:
    """A connection of two sides: what one has sent and the other not heard yet, in order."""

    def __init__(self):
        self.queues = {"a": [], "b": []}


class End:
    """One side of it."""

    def __init__(self, wire, side, other):
        self.wire, self.side = wire, side
        self.peer = WorkerInfo(other, UNKNOWN_ID, 1)
        self.has_ended = False


class World:
    """Two workers that dial each other, lose each other and hear of it late."""

    def __init__(self):
        self.sessions = {"a": Session(WorkerInfo("b", 2, 1)), "b": Session(WorkerInfo("a", 1, 1))}
        self.ends = []
        self.dialled = {}

    def possible(self):
        """What may happen next."""
        for side, session in self.sessions.items():
            if side in self.dialled:
                yield "greet", side
            elif session.outgoing is None and len(self.ends) < 6:
                yield "dial", side
            for connection in session.connections():
                yield "silence", self.ends.index(connection), side
        for index, end in enumerate(self.ends):
            if end.wire.queues[end.side] and not end.has_ended:
                yield "hear", index, end.side

    def do(self, event):
        match event:
            case "dial", side:
                self.dial(side)
            case "greet", side:
                self.greet(side)
            case "silence", index, side:
                self.carry_out(side, self.sessions[side].broken(self.ends[index], GONE))
            case "hear", index, side:
                self.hear(self.ends[index], side)

    def dial(self, side):
        other = "b" if side == "a" else "a"
        wire = Wire()
        mine, theirs = End(wire, side, other), End(wire, other, side)
        self.ends += [mine, theirs]
        self.dialled[side] = mine
        assert self.sessions[side].dials(mine)
        wire.queues[other].append("proof")

    def greet(self, side):
        session, mine = self.sessions[side], self.dialled.pop(side)
        greeting = session.dialled(1)
        mine.wire.queues["b" if side == "a" else "a"].append(greeting)
        if not mine.has_ended:
            self.carry_out(side, session.greets(mine))
        session.stops_dialling(mine)

    def hear(self, end, side):
        message = end.wire.queues[side].pop(0)
        session = self.sessions[side]
        if message == "proof":
            self.carry_out(side, session.accepted(end))
        elif message == "end":
            self.carry_out(side, session.broken(end, GONE))
        else:
            effects = session.greeted(end, "", message.place, message.given_up)
            self.carry_out(side, effects)

    def carry_out(self, side, effects):
        other = "b" if side == "a" else "a"
        for effect in effects:
            for end in effect.ended:
                if not end.has_ended:
                    end.has_ended = True
                    end.wire.queues[other].append("end")

    def settle(self, order=0):
        """Let all be heard that is under way, what was opened first or last before the rest."""
        while True:
            heard = [event for event in self.possible() if event[0] in ("greet", "hear")]
            if not heard:
                return
            self.do(heard[order])

    def agree(self):
        """Whether what one side takes for current, the other does."""
        mine, theirs = (
            {each.wire for each in session.connections()} for session in self.sessions.values()
        )
        return mine == theirs

    def state(self):
        return (
            tuple(
                (
                    session.phase,
                    *(self.ends.index(each) for each in session.connections()),
                    session.outgoing is None,
                    session.place,
                    session.opened,
                    session.given_up,
                )
                for session in self.sessions.values()
            )
            + tuple((end.has_ended, str(end.wire.queues[end.side])) for end in self.ends)
            + tuple((side, self.ends.index(end)) for side, end in self.dialled.items())
        )


DEEPEST = 10


def replay(way):
    world = World()
    for event in way:
        world.do(event)
    return world


def worlds():
    """Every world that can be reached, by the way there."""
    seen = set()
    waiting = deque([()])
    while waiting:
        way = waiting.popleft()
        for event in replay(way).possible():
            longer = (*way, event)
            state = replay(longer).state()
            if state not in seen:
                seen.add(state)
                yield longer
                if len(way) < DEEPEST:
                    waiting.append(longer)


def test_two_that_lose_each_other_at_different_times_agree_when_all_has_been_heard():
    count = 0
    for way in worlds():
        count += 1
        world = replay(way)
        world.settle()
        assert world.agree(), way
    assert count > 1000


@pytest.mark.parametrize("order", [0, -1])
def test_a_connection_that_is_opened_after_a_loss_is_not_lost_by_what_is_heard_late(order):
    count = 0
    for way in worlds():
        for side in ("a", "b"):
            world = replay(way)
            if world.sessions[side].connections() or side in world.dialled:
                continue
            # One that was opened before, but whose greeting has not been heard yet, is its like.
            if any(set(end.wire.queues[end.side]) - {"end"} for end in world.ends):
                continue
            count += 1
            world.dial(side)
            new = world.dialled[side]
            world.greet(side)
            world.settle(order)
            assert world.sessions[side].outgoing is new, way
            assert world.agree(), way
    assert count > 100


def test_a_life_that_was_only_heard_of_is_not_gone_though_the_one_before_was_lost():
    session = Session(WorkerInfo("b", 1, 7), "there")
    session.left(ConnectionError("it has left"))
    assert not session.is_gone, "it was never met"
    session = Session(WorkerInfo("b", 1, 7))
    connection = Connection(7)
    session.accepted(connection)
    assert session.greeted_path is None
    session.greeted(connection, "", 1, 0)
    assert session.greeted_path is connection
    session.broken(connection, ConnectionError("cut"))
    assert session.is_gone
    assert session.greeted_path is None
    session.named(WorkerInfo("b", 1, 8), "")
    assert not session.is_gone
