"""The count of references, message by message, without a network."""

import random

import pytest

from telegrad.rpc.protocol.reference_table import (
    ABANDONED,
    ADD,
    AWAITED,
    CHILD,
    CONFIRM,
    DELETE,
    Held,
    ReferenceState,
    ReferenceTable,
    Send,
)


def owner_with_user():
    owner, user = ReferenceTable("owner"), ReferenceTable("user")
    owner.create(1, "user")
    user.held[1] = Held(1, 1, "owner", None, ReferenceState.CONFIRMED)
    return owner, user


def test_the_last_user_frees_the_value():
    owner, user = owner_with_user()
    (delete,) = user.release(1)
    assert delete == Send("owner", (DELETE, 1, 1))
    owner.handle("user", delete.message)
    assert not owner.owned
    assert not user.held


def test_a_value_stays_while_the_owner_has_a_handle():
    owner = ReferenceTable("owner")
    owner.own(1, "value")
    owner.open_handle(1)
    owner.open_handle(1)
    owner.close_handle(1)
    assert 1 in owner.owned
    owner.close_handle(1)
    assert not owner.owned


def test_a_user_that_passes_a_reference_on_keeps_it_until_the_child_is_counted():
    owner, user = owner_with_user()
    child = ReferenceTable("child")
    user.give(1, 1, 9, "child")
    assert user.release(1) == []
    (add,) = child.arrived(1, 9, "owner", "user")
    assert add == Send("owner", (ADD, 1, 9, False))
    (confirm,) = owner.handle("child", add.message)
    assert confirm == Send("child", (CONFIRM, 1, 9, True))
    (told,) = child.handle("owner", confirm.message)
    assert told == Send("user", (CHILD, 9))
    (delete,) = user.handle("child", told.message)
    owner.handle("user", delete.message)
    assert list(owner.owned[1].users.values()) == ["child"]


def test_a_child_released_before_it_is_confirmed_deletes_only_afterwards():
    owner, _ = owner_with_user()
    child = ReferenceTable("child")
    child.arrived(1, 9, "owner", "user")
    assert child.release(9) == []
    (confirm,) = owner.handle("child", (ADD, 1, 9, False))
    effects = child.handle("owner", confirm.message)
    assert effects == [Send("user", (CHILD, 9)), Send("owner", (DELETE, 1, 9))]


def test_a_reference_whose_message_never_arrived_is_taken_back():
    owner = ReferenceTable("owner")
    owner.own(1, "value")
    owner.give(1, None, 9, "user")
    assert 1 in owner.owned
    owner.take_back(9)
    assert not owner.owned
    # Its receiver may be lost as well, before the call that carried it ends.
    assert owner.take_back(9) == []


def test_the_forks_of_a_lost_user_go():
    owner, _ = owner_with_user()
    owner.peer_lost("user", ConnectionError())
    assert not owner.owned


def test_a_user_is_lost_whose_release_overtook_the_news_that_it_has_the_fork():
    owner = ReferenceTable("owner")
    owner.own(1, "value")
    owner.give(1, None, 9, "user")
    owner.handle("user", (DELETE, 1, 9))
    assert not owner.owned
    assert owner.peer_lost("user", ConnectionError()) == []
    assert not owner.given


def test_the_loss_of_the_owner_makes_references_say_so():
    _, user = owner_with_user()
    why = ConnectionError("gone")
    assert user.peer_lost("owner", why) == []
    assert user.held[1].state is ReferenceState.GONE
    assert user.held[1].why_gone is why
    # The owner, if it is back, may have counted it since.
    assert user.release(1) == [Send("owner", (DELETE, 1, 1))]
    assert not user.held


def test_the_loss_of_the_owner_leaves_a_creation_to_its_call_which_may_take_another_path():
    user = ReferenceTable("user")
    user.ask(5, "owner")
    user.peer_lost("owner", ConnectionError("gone"))
    assert user.release(5) == []
    assert user.confirmed(5, None) == [Send("owner", (DELETE, 5, 5))]
    assert not user.held


def test_a_fork_that_was_given_up_before_its_owner_counted_it_is_deleted_there():
    owner, _ = owner_with_user()
    child = ReferenceTable("child")
    (add,) = child.arrived(1, 9, "owner", "user")
    child.peer_lost("owner", ConnectionError("gone"))
    child.release(9)
    (confirm,) = owner.handle("child", add.message)
    (delete,) = child.handle("owner", confirm.message)
    owner.handle("child", delete.message)
    assert list(owner.owned[1].users.values()) == ["user"]


def test_a_fork_that_was_given_up_stays_gone_when_its_owner_confirms_it():
    owner, _ = owner_with_user()
    child = ReferenceTable("child")
    (add,) = child.arrived(1, 9, "owner", "user")
    assert child.peer_lost("owner", ConnectionError("gone")) == [Send("user", (CHILD, 9))]
    (confirm,) = owner.handle("child", add.message)
    assert child.handle("owner", confirm.message) == []
    assert child.held[9].state is ReferenceState.GONE
    assert child.release(9) == [Send("owner", (DELETE, 1, 9))]


def test_a_released_fork_is_deleted_when_the_child_that_kept_it_is_lost():
    _, user = owner_with_user()
    user.give(1, 1, 9, "child")
    user.release(1)
    assert user.peer_lost("child", ConnectionError()) == [Send("owner", (DELETE, 1, 1))]


def test_the_loss_of_a_parent_spares_it_the_news_of_its_children_and_no_other_parent():
    child = ReferenceTable("child")
    child.arrived(1, 8, "owner", "a")
    child.arrived(1, 9, "owner", "b")
    assert child.peer_lost("a", ConnectionError()) == []
    assert child.handle("owner", (CONFIRM, 1, 8, True)) == []
    assert child.handle("owner", (CONFIRM, 1, 9, True)) == [Send("b", (CHILD, 9))]


def test_a_fork_of_an_unknown_value_is_told_so():
    owner, child = ReferenceTable("owner"), ReferenceTable("child")
    child.arrived(5, 9, "owner", "user")
    (confirm,) = owner.handle("child", (ADD, 5, 9, False))
    child.handle("owner", confirm.message)
    assert child.held[9].state is ReferenceState.GONE


def test_a_fork_that_comes_home_when_its_value_is_gone_does_not_bring_it_back():
    owner = ReferenceTable("owner")
    assert owner.came_home(5, 9, "user") == [Send("user", (CHILD, 9))]
    owner.close_handle(5)
    assert not owner.owned


def test_places_whose_creation_will_never_come_are_told_from_others():
    table = ReferenceTable("owner", list)
    table.came_home(7, 9, "reader", is_early=True)
    table.came_home(8, 10, "reader", is_early=True)
    created = table.create(8, "maker")
    place = table.owned[7].value
    assert table.give_up_awaited([7, 8]) == [place]
    assert created is not place
    assert table.give_up_awaited([7, 8]) == []


def test_an_early_fork_keeps_a_place_that_the_creation_fills():
    owner = ReferenceTable("owner", list)
    confirm, _ = owner.handle("child", (ADD, 5, 9, True))
    assert confirm == Send("child", (CONFIRM, 5, 9, True))
    place = owner.owned[5].value
    assert owner.create(5, "user") is place
    assert owner.owned[5].users == {9: "child", 5: "user"}


CREATED = 3 << 48 | 1
"""The number of a reference that the worker of id 3 has asked for."""


def asked():
    """An owner that an early fork came to, who asked for the creation, and what he is told."""
    owner, user = ReferenceTable("owner", list), ReferenceTable("user")
    user.ask(CREATED, "owner")
    _, told = owner.handle("child", (ADD, CREATED, 9, True))
    assert told == Send(3, (AWAITED, CREATED))
    return owner, user, told


def test_whoever_asked_for_an_awaited_value_tells_its_owner_that_the_asking_failed():
    _, user, told = asked()
    assert user.handle("owner", told.message) == []
    assert user.confirmed(CREATED, TimeoutError("too late")) == [
        Send("owner", (ABANDONED, CREATED, "too late"))
    ]


def test_whoever_gave_up_asking_for_a_value_tells_an_owner_that_awaits_it():
    _, user, told = asked()
    assert user.confirmed(CREATED, TimeoutError("too late")) == []
    (answer,) = user.handle("owner", told.message)
    assert answer == Send("owner", (ABANDONED, CREATED, "too late"))
    user.release(CREATED)
    (answer,) = user.handle("owner", told.message)
    assert answer.message[:2] == (ABANDONED, CREATED)


def test_whoever_sees_an_awaited_value_created_says_nothing():
    _, user, told = asked()
    assert user.handle("owner", told.message) == []
    assert user.confirmed(CREATED, None) == []
    assert user.handle("owner", told.message) == []


def test_an_owner_asks_once_for_a_value_that_many_await():
    owner, _, _ = asked()
    confirm = Send("child", (CONFIRM, CREATED, 10, True))
    assert owner.handle("child", (ADD, CREATED, 10, True)) == [confirm]
    owner.create(CREATED, "user")
    assert len(owner.handle("child", (ADD, CREATED, 11, True))) == 1


def test_an_awaited_place_outlives_its_users_until_it_is_given_up():
    owner, _, _ = asked()
    place = owner.owned[CREATED].value
    owner.handle("child", (DELETE, CREATED, 9))
    assert owner.give_up_awaited([CREATED]) == [place]
    assert not owner.owned


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="expected a message about references"):
        ReferenceTable("a").handle("b", ("what", 1))


@pytest.mark.parametrize("seed", range(300))
def test_whatever_the_order_of_messages_the_value_goes_with_its_last_holder(seed):
    dice = random.Random(seed)
    tables = {name: ReferenceTable(name) for name in ("owner", "a", "b", "c")}
    tables["owner"].create(0, "a")
    tables["a"].held[0] = Held(0, 0, "owner", None, ReferenceState.CONFIRMED)
    holders = [("a", 0)]
    numbers = iter(range(1, 1000))
    mail: list[tuple[str, str, object]] = []

    def post(frm, effects):
        mail.extend((frm, effect.to, effect.message) for effect in effects)

    for _ in range(60):
        move = dice.random()
        if mail and move < 0.5:
            frm, to, message = mail.pop(dice.randrange(len(mail)))
            if message[0] == "travels":
                fork = message[1]
                if to == "owner":
                    effects = tables[to].came_home(0, fork, frm)
                    tables[to].close_handle(0)
                    post(to, effects)
                else:
                    post(to, tables[to].arrived(0, fork, "owner", frm))
                    holders.append((to, fork))
            else:
                post(to, tables[to].handle(frm, message))
        elif holders and move < 0.8:
            name, fork = holders[dice.randrange(len(holders))]
            to = dice.choice([other for other in tables if other != name])
            new = next(numbers)
            tables[name].give(0, fork, new, to)
            mail.append((name, to, ("travels", new)))
        elif holders:
            name, fork = holders.pop(dice.randrange(len(holders)))
            post(name, tables[name].release(fork))
        if holders:
            assert tables["owner"].owned, "freed while somebody holds it"
    while mail or holders:
        if mail:
            frm, to, message = mail.pop(dice.randrange(len(mail)))
            if message[0] != "travels":
                post(to, tables[to].handle(frm, message))
            elif to == "owner":
                effects = tables[to].came_home(0, message[1], frm)
                tables[to].close_handle(0)
                post(to, effects)
            else:
                post(to, tables[to].arrived(0, message[1], "owner", frm))
                holders.append((to, message[1]))
        else:
            name, fork = holders.pop()
            post(name, tables[name].release(fork))
    for table in tables.values():
        assert not table.owned
        assert not table.held
        assert not table.given
