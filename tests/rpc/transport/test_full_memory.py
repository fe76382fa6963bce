"""Shared memory that the system can't give: the bytes go over the socket, and nobody crashes."""

import os
import subprocess
import sys
import textwrap

import pytest

from telegrad.rpc.transport.segments import SEGMENTS

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(not SEGMENTS, reason="this system has no sealed memory files"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small file system"),
]

MOUNTED = """
    import fcntl, os, subprocess, sys
    place = sys.argv[1]
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", place])
    if mounted.returncode:
        sys.exit(77)

    # Memory files of a machine that has no memory left, as far as the kernel is concerned.
    def memfd_create(*_):
        return os.open(place, os.O_TMPFILE | os.O_RDWR)

    real = fcntl.fcntl

    def sealed(fd, command, *rest):
        if command == fcntl.F_ADD_SEALS:
            return 0
        if command == fcntl.F_GET_SEALS:
            return fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
        return real(fd, command, *rest)

    os.memfd_create, fcntl.fcntl = memfd_create, sealed
"""


def run_mounted(tmp_path, script):
    """Run the script where memory files lie in a file system of 8 MB; say what it printed."""
    source = textwrap.dedent(MOUNTED) + textwrap.dedent(script)
    # In a mount namespace of its own, which goes with it.
    command = ["unshare", "--mount", sys.executable, "-c", source, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip(f"nothing can be mounted here: {done.stderr}")
    assert done.returncode == 0, (done.returncode, done.stderr)
    return done.stdout


def test_a_pool_gives_no_segment_whose_pages_cant_be_had(tmp_path):
    script = """
        from telegrad.rpc.transport.segments import SegmentPool
        pool = SegmentPool()
        small = pool.take("peer", 1 << 20)
        small.view[:] = b"x" * (1 << 20)
        large = pool.take("peer", 32 << 20)
        if large is not None:
            large.view[:] = b"x" * (32 << 20)
        print(large, len(pool))
        small.vacate()
        again = pool.take("peer", 1 << 20)
        again.view[:] = b"y" * (1 << 20)
        print(bytes(again.view[:3]))
    """
    assert run_mounted(tmp_path, script) == "None 1\nb'yyy'\n"


def test_calls_with_large_arrays_go_over_the_socket_where_memory_files_are_full(tmp_path):
    script = """
        sys.path.insert(0, ".")
        import numpy as np
        from tests.rpc.neighbours import neighbours
        with neighbours("a", "b") as (a, b):
            for size in (1 << 20, 8 << 20, 1 << 20, 32 << 20):
                x = np.arange(size, dtype=np.uint8)
                assert (a.rpc_sync("b", np.negative, (x,)) == -x).all()
        print("exact")
    """
    assert run_mounted(tmp_path, script) == "exact\n"
