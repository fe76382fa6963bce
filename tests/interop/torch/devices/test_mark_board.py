"""The page in which a receiver says what it has let go of."""

import os
import subprocess
import sys

import pytest

from telegrad.errors import ProtocolViolation
from telegrad.interop.torch.devices.mark_board import MARKS, MarkBoard

OPEN = (
    "import sys; from telegrad.interop.torch.devices.mark_board import MarkBoard; "
    "board = MarkBoard.open(int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3])); "
    "print(board.is_set(5)); board.clear(5)"
)


def test_both_sides_see_one_memory():
    board = MarkBoard.make()
    other = MarkBoard.open(*board.whereabouts())
    for place in (0, MARKS - 1):
        board.set(place)
        assert other.is_set(place)
        other.clear(place)
        assert not board.is_set(place)
    board.close()
    board.set(1)
    assert other.is_set(1)


@pytest.mark.processes
def test_another_process_clears_a_mark():
    board = MarkBoard.make()
    board.set(5)
    process, fd, secret = board.whereabouts()
    command = [sys.executable, "-c", OPEN, str(process), str(fd), secret.hex()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "True"
    assert not board.is_set(5)
    board.close()


def test_another_file_another_secret_and_a_closed_board_are_refused(tmp_path):
    board = MarkBoard.make()
    process, fd, secret = board.whereabouts()
    with pytest.raises(ProtocolViolation, match="is not the one that was named"):
        MarkBoard.open(process, fd, bytes(len(secret)))
    file = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(ProtocolViolation, match=r"expected a board of marks .* another file"):
        MarkBoard.open(os.getpid(), file, secret)
    os.close(file)
    unsealed = os.memfd_create("telegrad-marks", os.MFD_ALLOW_SEALING)
    os.ftruncate(unsealed, 4096)
    with pytest.raises(ProtocolViolation, match="expected a sealed board"):
        MarkBoard.open(os.getpid(), unsealed, secret)
    os.close(unsealed)
    board.close()
    with pytest.raises(OSError):
        MarkBoard.open(process, fd, secret)
