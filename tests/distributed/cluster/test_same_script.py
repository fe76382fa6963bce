"""Functions and classes of a script: by name where every worker runs it, else by value."""

import textwrap

import pytest

pytestmark = pytest.mark.processes

SHARED = """
    import enum
    import threading

    from telegrad.distributed import rpc


    class Server:
        def __init__(self):
            self.asked = []

        def ask(self, who):
            self.asked.append(who)


    class Colour(enum.Enum):
        RED = 1


    class Displeased(Exception):
        pass


    lock = threading.Lock()
    server = None


    def the_server():
        global server
        with lock:
            server = server or Server()
            return rpc.RRef(server)


    def copy_of_server():
        return server


    def complain():
        raise Displeased(me.name)


    rpc.init_rpc()
    me = rpc.get_worker_info()


    def defined_later():
        return me.name


    if me.id != 0:
        rpc.rpc_sync("ps", the_server).rpc_sync().ask(me.name)
        assert isinstance(rpc.rpc_sync("ps", copy_of_server), Server)
        assert isinstance(rpc.rpc_sync("ps", lambda: copy_of_server()), Server)
        assert rpc.remote("ps", Server).rpc_sync().ask(1) is None
        assert rpc.rpc_sync("ps", lambda colour: colour is Colour.RED, (Colour.RED,))
        assert rpc.rpc_sync("ps", defined_later) == me.name
        try:
            rpc.rpc_sync("ps", complain)
        except Displeased as error:
            assert error.args == ("ps",)
    rpc.shutdown()
    if me.id == 0:
        print(sorted(server.asked))
    """

COUNTING = """
    from telegrad.distributed import rpc

    counted = 0


    def count():
        global counted
        counted += 1
        return counted


    rpc.init_rpc()
    if rpc.get_worker_info().id == 0:
        rpc.rpc_sync(1, count)
    rpc.shutdown()
    print(counted)
    """

SOMETIMES = """
    import os

    from telegrad.distributed import rpc
    from telegrad.errors import UsageError

    if os.environ["RANK"] == "0":

        def only_here():
            return 1


    rpc.init_rpc()
    if rpc.get_worker_info().id == 0:
        try:
            rpc.rpc_sync(1, only_here)
        except UsageError as error:
            print(error)
    rpc.shutdown()
    """

RETURNING = """
    import os
    import subprocess
    import sys
    import threading
    import time

    from telegrad.distributed import rpc
    from telegrad.errors import PeerError

    version = "old"


    def version_here():
        return version


    def is_there():
        try:
            return rpc.rpc_sync(1, abs, (-1,)) == 1
        except PeerError:
            return False


    rpc.init_rpc()
    if rpc.get_worker_info().id == 0:
        version = "caller's"
        print(rpc.rpc_sync(1, version_here))
        try:
            rpc.rpc_sync(1, os._exit, (0,))
        except PeerError:
            pass
        with open(__file__) as own, open(__file__ + ".new.py", "w") as edited:
            edited.write(own.read().replace('"old"', '"new"'))
        place = {"RANK": "1", "TELEGRAD_WORKER_NAME": "second"}
        again = subprocess.Popen([sys.executable, edited.name], env={**os.environ, **place})
        deadline = time.monotonic() + 60
        while not is_there():
            assert time.monotonic() < deadline
        print(rpc.rpc_sync(1, version_here))
    elif version != "new":
        # Until it is ended: not as it dials for its shutdown, of which the first would tell.
        threading.Event().wait()
    rpc.shutdown()
    if os.environ["RANK"] == "0":
        assert again.wait(60) == 0
    """


@pytest.fixture
def run(launch, tmp_path):
    """Return a function that runs a script for each worker and returns what they print."""

    def start(**scripts):
        started = []
        for rank, (name, script) in enumerate(scripts.items()):
            path = tmp_path / f"{name}.py"
            path.write_text(textwrap.dedent(script))
            started.append(launch(name, rank, len(scripts), path))
        printed = [process.communicate(timeout=60)[0] for process in started]
        assert [process.returncode for process in started] == [0] * len(started), printed
        return printed

    return start


def test_a_global_of_the_script_is_one_for_all_who_call_the_worker_that_has_it(run):
    assert run(ps=SHARED, t0=SHARED, t1=SHARED) == ["['t0', 't1']\n", "", ""]


def test_a_function_of_a_script_that_not_all_run_goes_by_value_with_its_globals(run):
    assert run(first=COUNTING, second=COUNTING + "# Another script.\n") == ["0\n", "0\n"]


def test_what_the_script_defines_on_some_workers_only_is_named(run):
    said = run(first=SOMETIMES, second=SOMETIMES)[0]
    assert "the script defines no 'only_here' on this worker" in said
    assert "before init_rpc" in said


def test_a_function_goes_by_value_once_a_worker_has_come_back_with_another_script(run):
    assert run(first=RETURNING, second=RETURNING) == ["old\ncaller's\n", ""]
