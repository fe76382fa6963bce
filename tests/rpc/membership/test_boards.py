"""Boards: texts in one order for all, kept by a directory or by a store of PyTorch's."""

import fcntl
import os
import stat
import threading

import pytest
import torch.distributed

from telegrad.errors import Refused, UsageError
from telegrad.rpc.membership.board import Board
from telegrad.rpc.membership.directory_board import DirectoryBoard, remove_unused_board
from telegrad.rpc.membership.place import board_of
from telegrad.rpc.membership.store_board import StoreBoard


@pytest.fixture(params=["directory", "TCPStore", "FileStore", "HashStore"])
def boards(request, tmp_path):
    """A function that gives another view of one board."""
    if request.param == "directory":
        return lambda: DirectoryBoard(tmp_path / "board")
    if request.param == "FileStore":
        return lambda: StoreBoard(torch.distributed.FileStore(str(tmp_path / "file"), -1))
    if request.param == "HashStore":
        store = torch.distributed.HashStore()
        return lambda: StoreBoard(store)
    server = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    request.node.server = server
    return lambda: StoreBoard(torch.distributed.TCPStore("127.0.0.1", server.port, is_master=False))


def test_texts_are_read_in_the_order_they_were_posted_by_anyone(boards):
    one, other = boards(), boards()
    assert isinstance(one, Board)
    assert one.read(0) == []
    one.post("a")
    other.post("b")
    one.post("ä")
    assert one.read(0) == other.read(0) == ["a", "b", "ä"]
    assert other.read(2) == ["ä"]
    assert one.read(3) == []


def test_many_post_at_once_and_all_read_the_same(boards):
    views = [boards() for _ in range(4)]

    def post(view, number):
        for count in range(10):
            view.post(f"{number} {count}")

    threads = [threading.Thread(target=post, args=each) for each in zip(views, range(4))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    first = views[0].read(0)
    assert sorted(first) == sorted(
        f"{number} {count}" for number in range(4) for count in range(10)
    )
    assert all(view.read(0) == first for view in views)


def test_a_directory_that_everyone_has_left_is_cleared_by_the_next(tmp_path):
    first, second = DirectoryBoard(tmp_path / "x"), DirectoryBoard(tmp_path / "x")
    first.post("a")
    first.close()
    third = DirectoryBoard(tmp_path / "x")
    assert third.read(0) == ["a"], "the second one still holds it"
    second.close()
    third.close()
    third.close()
    assert DirectoryBoard(tmp_path / "x").read(0) == []


def test_a_directory_is_removed_only_if_nobody_uses_it(tmp_path):
    board = DirectoryBoard(tmp_path / "x")
    board.post("a")
    with pytest.raises(BlockingIOError):
        remove_unused_board(board.path)
    assert board.read(0) == ["a"]
    board.close()
    remove_unused_board(board.path)
    assert not os.path.exists(board.path)


@pytest.mark.parametrize("before", ["the lock is opened", "the lock is held"])
def test_a_directory_that_is_removed_while_it_is_opened_is_made_again(
    tmp_path, monkeypatch, before
):
    path, others = tmp_path / "x", []
    DirectoryBoard(path).close()
    real = {"open": os.open, "flock": fcntl.flock}

    def as_another_removes_it(name):
        def call(*args):
            monkeypatch.undo()
            remove_unused_board(str(path))
            if name == "flock":
                others.append(DirectoryBoard(path))
                others[0].post("another's")
            return real[name](*args)

        return call

    if before == "the lock is opened":
        monkeypatch.setattr(os, "open", as_another_removes_it("open"))
    else:
        monkeypatch.setattr(fcntl, "flock", as_another_removes_it("flock"))
    board = DirectoryBoard(path)
    board.post("mine")
    assert DirectoryBoard(path).read(0) == ["another's"] * len(others) + ["mine"]


def test_a_directory_is_made_for_its_user_alone_and_another_is_refused(tmp_path):
    board = DirectoryBoard(tmp_path / "new" / "board")
    assert stat.S_IMODE(os.stat(board.path).st_mode) == 0o700
    os.mkdir(tmp_path / "open")
    os.chmod(tmp_path / "open", 0o755)
    with pytest.raises(Refused, match="mode 0700"):
        DirectoryBoard(tmp_path / "open")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"expected a directory to meet in at .*can't be made"):
        DirectoryBoard(tmp_path / "file" / "board")


def test_a_place_is_a_path_or_a_store(tmp_path):
    assert board_of(f"file://{tmp_path}/a").path == board_of(tmp_path / "a").path
    assert isinstance(board_of(torch.distributed.HashStore()), StoreBoard)
    board = board_of(tmp_path / "b")
    assert board_of(board) is board
    with pytest.raises(UsageError, match=r"a directory's path or a .*Store.* a int"):
        board_of(3)
