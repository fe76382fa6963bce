"""The stand-ins for torch.distributed.rpc, .autograd and .optim: what PyTorch's tests don't see."""

import gc
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import weakref

import pytest
import torch
from tests.rpc.connected import mint_cluster
from tests.rpc.neighbours import eventually
from tests.torch.rpc.test_gather import other_worker

import telegrad.torch.autograd as dist_autograd
import telegrad.torch.rpc as rpc
from telegrad.errors import CallTimeout, Refused, UnknownWorker, UsageError, WorkerLost
from telegrad.rpc.calls.future import Future
from telegrad.rpc.membership import user_directory as user_directory_module
from telegrad.rpc.security.keys import ClusterKey
from telegrad.torch.optim import DistributedOptimizer
from telegrad.torch.rpc import failures, rendezvous
from telegrad.torch.rpc.future import CallFuture, outcome_of


@pytest.fixture
def own_temporary(tmp_path, monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        # A socket's path must be short.
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        yield from _with_nothing_set(tmp_path, monkeypatch)


def _with_nothing_set(tmp_path, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TELEGRAD_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    yield tmp_path


# Where workers meet.


def test_workers_meet_at_the_address_in_the_url(own_temporary):
    place = rendezvous.find_place("tcp://127.0.0.1:4711?rank=1&world_size=3", -1, None)
    met_at = f"unix://{user_directory_module.user_directory()}/port-4711.sock"
    assert (place.meeting.address, place.rank, place.world_size) == (met_at, 1, 3)
    given = rendezvous.find_place("tcp://127.0.0.1:4711?rank=1&world_size=3", 2, 4)
    assert (given.rank, given.world_size) == (2, 4)


def test_workers_meet_at_the_address_in_the_environment(own_temporary, monkeypatch):
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "4711"}.items():
        monkeypatch.setenv(name, value)
    place = rendezvous.find_place("env://", -1, None)
    met_at = f"unix://{user_directory_module.user_directory()}/port-4711.sock"
    assert (place.meeting.address, place.rank, place.world_size) == (met_at, 1, 2)


def test_workers_with_a_key_of_their_own_meet_at_the_port_itself(own_temporary, monkeypatch):
    ClusterKey.fresh().save(own_temporary / "key")
    monkeypatch.setenv("TELEGRAD_KEY_FILE", str(own_temporary / "key"))
    place = rendezvous.find_place("tcp://localhost:4711", 0, 1)
    assert place.meeting.address == "tcp://localhost:4711"


def test_workers_of_several_machines_need_no_more_than_a_key(own_temporary, monkeypatch):
    ClusterKey.fresh().save(own_temporary / "key")
    monkeypatch.setenv("TELEGRAD_KEY_FILE", str(own_temporary / "key"))
    meeting = rendezvous.find_place("tcp://192.0.2.1:4711", 0, 1, "a").meeting
    assert meeting.address == "tls://192.0.2.1:4711"
    assert repr(meeting.credentials) == "KeyedCredentials('a')"


def test_an_address_beyond_this_machine_needs_a_key(own_temporary):
    with pytest.raises(RuntimeError, match="telegrad keygen"):
        rpc.init_rpc(
            "a",
            rank=0,
            world_size=1,
            rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method="tcp://192.0.2.1:4711"),
        )


def test_a_store_of_pytorchs_may_be_at_the_address_of_the_meeting():
    store = torch.distributed.TCPStore("localhost", 0, 1, True)
    where = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://localhost:{store.port}")
    rpc.init_rpc("alone", rank=0, world_size=1, rpc_backend_options=where)
    try:
        assert rpc.rpc_sync("alone", len, ("abc",)) == 3
    finally:
        rpc.shutdown()


def test_a_path_names_a_meeting_place_and_is_left_alone(own_temporary):
    first = rendezvous.find_place(f"file://{own_temporary}/a", 0, 2).meeting
    again = rendezvous.find_place(f"file://{own_temporary}/x/../a", 1, 2).meeting
    other = rendezvous.find_place(f"file://{own_temporary}/b", 0, 2).meeting
    assert first.address == again.address != other.address
    assert not os.path.exists(own_temporary / "a")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("zeus://olympus", "expected env://, tcp://host:port or file:///path"),
        ("tcp://127.0.0.1", "expected tcp://host:port"),
        ("tcp://127.0.0.1:1", "rank parameter missing"),
        ("env://", "environment variable RANK expected"),
    ],
)
def test_a_url_that_does_not_say_enough_is_refused(own_temporary, url, message):
    size = 2 if message.startswith("expected") else None
    with pytest.raises(ValueError, match=message):
        rendezvous.find_place(url, 0 if size else -1, size)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"backend": "TENSORPIPE"}, "backend must be a member of BackendType"),
        ({"rpc_backend_options": {}}, "must be an instance of RpcBackendOptions"),
        ({"rpc_backend_options": rpc.RpcBackendOptions()}, "Could not infer backend for options"),
        (
            {
                "backend": rpc.BackendType.TENSORPIPE,
                "rpc_backend_options": rpc.RpcBackendOptions(),
            },
            "must be a `TensorPipeRpcBackendOptions`",
        ),
    ],
    ids=["backend", "no options", "whose options", "other options"],
)
def test_what_init_rpc_does_not_take_is_refused_before_anybody_is_met(given, message):
    with pytest.raises(TypeError, match=message):
        rpc.init_rpc("alone", rank=0, world_size=1, **given)
    assert not rpc._is_current_rpc_agent_set()


def test_without_a_port_in_the_environment_there_is_nowhere_to_meet(own_temporary):
    with pytest.raises(ValueError, match="environment variable MASTER_PORT expected, but not set"):
        rendezvous.find_place("env://", 0, 1)


@pytest.mark.parametrize(
    ("variable", "given", "said"),
    [
        ("RANK", "first", "expected an integer for rank, got 'first'"),
        ("WORLD_SIZE", "2 of them", "expected an integer for world_size, got '2 of them'"),
        ("MASTER_PORT", "abc", "expected an integer for MASTER_PORT, got 'abc'"),
        ("MASTER_PORT", "65536", "expected a port up to 65535 for MASTER_PORT, got 65536"),
    ],
)
def test_a_variable_that_is_no_number_is_named(own_temporary, monkeypatch, variable, given, said):
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_PORT": "7",
        variable: given,
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=said):
        rendezvous.find_place("env://", -1, None)


def test_a_path_is_no_place_for_workers_of_several_machines(own_temporary, monkeypatch):
    mint_cluster(own_temporary / "keys", "alone")
    monkeypatch.setenv("TELEGRAD_CREDENTIALS", str(own_temporary / "keys" / "alone"))
    with pytest.raises(UsageError, match=r"expected tcp://host:port or env:// .* got file:///x"):
        rendezvous.find_place("file:///x", 0, 1)


def test_the_key_of_a_user_is_made_once_and_private(own_temporary):
    assert user_directory_module.users_key() == user_directory_module.users_key()
    directory = user_directory_module.user_directory()
    modes = [
        stat.S_IMODE(os.stat(os.path.join(directory, name)).st_mode) for name in (".", "user.key")
    ]
    assert modes == [0o700, 0o600]


@pytest.fixture
def homeless(monkeypatch):
    """Neither a runtime directory nor a home, and a temporary directory that others may use."""
    with tempfile.TemporaryDirectory(dir="/tmp") as shared:
        os.chmod(shared, 0o1777)
        monkeypatch.setattr(user_directory_module.tempfile, "gettempdir", lambda: shared)
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        monkeypatch.setenv("HOME", "/nonexistent")
        if os.path.isdir(f"/run/user/{os.getuid()}"):
            monkeypatch.setattr(user_directory_module, "_own_places", lambda: iter(()))
        yield shared


def squat(shared):
    """Let another user make the directory that this user's would be."""
    path = os.path.join(shared, f"telegrad-user-{os.getuid()}")
    os.mkdir(path, 0o700)
    os.chown(path, 65534, 65534)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_another_user_cant_keep_a_program_from_its_key(homeless, monkeypatch):
    squat(homeless)
    with pytest.raises(Refused) as caught:
        user_directory_module.users_key()
    assert "is another's or can't be made: set XDG_RUNTIME_DIR to a directory" in str(caught.value)
    assert "mkdir -m 700" in str(caught.value)
    assert "TELEGRAD_KEY_FILE" in str(caught.value)
    # The advice helps, and so does a home.
    with tempfile.TemporaryDirectory(dir="/tmp") as runtime, tempfile.TemporaryDirectory() as home:
        monkeypatch.undo()
        monkeypatch.setattr(user_directory_module.tempfile, "gettempdir", lambda: homeless)
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        assert user_directory_module.users_key() == user_directory_module.users_key()
        assert user_directory_module.user_directory() == os.path.join(runtime, "telegrad")
        monkeypatch.setenv("XDG_RUNTIME_DIR", "")
        monkeypatch.setenv("HOME", home)
        if not os.path.isdir(f"/run/user/{os.getuid()}"):
            assert user_directory_module.user_directory().startswith(
                os.path.join(home, ".telegrad-")
            )
            assert user_directory_module.users_key() == user_directory_module.users_key()


def test_where_there_is_nothing_else_the_key_is_among_the_temporary_files(homeless):
    assert user_directory_module.users_key() == user_directory_module.users_key()
    assert user_directory_module.user_directory() == f"{homeless}/telegrad-user-{os.getuid()}"


def test_a_runtime_directory_that_is_not_the_users_is_not_used(own_temporary, monkeypatch):
    mine = user_directory_module.user_directory()
    os.chmod(os.environ["XDG_RUNTIME_DIR"], 0o755)
    monkeypatch.setenv("HOME", str(own_temporary))
    assert user_directory_module.user_directory() != mine


def test_a_directory_that_others_can_enter_is_no_place_for_a_key(own_temporary):
    os.chmod(user_directory_module.user_directory(), 0o755)
    with pytest.raises(Refused, match="0700"):
        user_directory_module.users_key()


def test_meeting_places_that_were_left_behind_go_after_a_day(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setenv("XDG_RUNTIME_DIR", short)
        paths = [
            f"{user_directory_module.user_directory()}/{name}.sock"
            for name in ("old", "young", "used")
        ]
        listening = [socket.socket(socket.AF_UNIX) for _ in paths]
        for path, each in zip(paths, listening):
            each.bind(path)
        listening[2].listen()
        for each in listening[:2]:
            each.close()
        for path in (paths[0], paths[2]):
            os.utime(path, (0, 0))
        rendezvous.find_place("file:///somewhere", 0, 2)
        assert [os.path.exists(path) for path in paths] == [False, True, True]
        listening[2].close()


# Options.


def test_devices_are_mapped_one_to_one():
    options = rpc.TensorPipeRpcBackendOptions(device_maps={"b": {"cuda:0": "cuda:1"}})
    options.set_device_map("b", {"cuda:1": "cuda:0"})
    assert len(options.device_maps["b"]) == 2
    with pytest.raises(ValueError, match="1-to-1"):
        options.set_device_map("b", {"cuda:0": "cuda:2"})
    with pytest.raises(ValueError, match="1-to-1"):
        options.set_device_map("c", {"cuda:0": "cuda:0", "cuda:1": "cuda:0"})
    with pytest.raises(ValueError, match="CUDA devices"):
        options.set_devices(["cpu"])


# Futures and errors.


def test_futures_mix_with_those_of_torch(alone):
    mine = rpc.rpc_async("alone", torch.add, args=(torch.ones(2), 1))
    theirs: torch.futures.Future = torch.futures.Future()
    theirs.set_result(5)
    first, second = torch.futures.collect_all([mine, theirs]).wait()
    assert first.wait().tolist() == [2, 2]
    assert second.wait() == 5
    assert mine.then(lambda done: done.wait().sum().item()).wait() == 4


def negated_later(x):
    return rpc.rpc_async("alone", torch.neg, (x,))


def test_an_async_function_may_answer_with_the_future_of_a_call(alone):
    later = rpc.functions.async_execution(negated_later)
    assert rpc.rpc_sync("alone", later, (torch.ones(2),)).tolist() == [-1.0, -1.0]


def test_a_callback_of_a_call_is_called_with_its_future(alone):
    seen = []
    call = rpc.rpc_async("alone", torch.neg, (torch.ones(1),))
    call.add_done_callback(lambda done: seen.append(done.value().item()))
    call.wait()
    assert eventually(lambda: seen == [-1.0])
    with pytest.raises(TypeError, match="incompatible function arguments"):
        call.add_done_callback(3)


def test_what_is_no_function_is_not_called(alone):
    with pytest.raises(TypeError, match="function should be callable, got int"):
        rpc.rpc_sync("alone", 3)


def test_a_call_that_was_refused_another_outcome_keeps_its_own(alone):
    future = rpc.rpc_async("alone", torch.add, (torch.ones(1), 1))
    with pytest.raises(RuntimeError, match="completed once"):
        future.set_exception(ValueError("mine"))
    assert torch.futures.wait_all([future]) == [torch.tensor([2.0])]


def doubled(x):
    return x * 2


def test_a_torchscript_function_of_the_program_itself_is_found(alone, monkeypatch):
    monkeypatch.setattr(doubled, "__module__", "__main__")
    script = torch.jit.script(doubled)
    monkeypatch.setattr(sys.modules["__main__"], "doubled", script, raising=False)
    assert script.qualified_name == "__torch__.doubled"
    assert rpc.rpc_sync("alone", script, (torch.ones(2),)).tolist() == [2.0, 2.0]


def negative_root(x: float) -> float:
    if x < 0:
        raise ValueError("no root")
    return x


def test_what_a_torchscript_function_raises_is_a_runtime_error(alone, monkeypatch):
    script = torch.jit.script(negative_root)
    monkeypatch.setattr(sys.modules[__name__], "negative_root", script)
    with pytest.raises(RuntimeError, match="no root"):
        rpc.rpc_sync("alone", script, (-1.0,))


def test_a_proxy_has_the_special_methods_of_the_value(alone):
    reference = rpc.remote("alone", list, ([3, 4],))
    assert reference.rpc_sync().__getitem__(1) == 4
    assert reference.rpc_async().__len__().wait() == 2
    assert reference.remote().__contains__(3).to_here() is True


@pytest.mark.parametrize("root", [3, None])
def test_a_root_that_is_no_tensor_is_a_type_error(alone, root):
    with (
        dist_autograd.context() as context_id,
        pytest.raises(TypeError, match="expected a list of tensors"),
    ):
        dist_autograd.backward(context_id, [root])


def test_a_failed_call_raises_its_own_type_wherever_it_is_looked_at(alone):
    call = rpc.rpc_async("alone", int, args=("x",))
    with pytest.raises(ValueError, match="invalid literal"):
        torch.futures.wait_all([call])
    with pytest.raises(ValueError, match="invalid literal"):
        call.wait()
    with pytest.raises(ValueError, match="invalid literal"):
        call.value()
    with pytest.raises(RuntimeError, match="completed once"):
        call.set_result(1)


class Watched:
    """Something that a frame holds, and that can be seen to go."""


def test_a_failed_future_keeps_nobody_alive_who_waited_for_it():
    def wait_for(call):
        watched = Watched()
        seen.append(weakref.ref(watched))
        future = CallFuture(call)
        with pytest.raises(ValueError, match="broken"):
            future.wait()
        with pytest.raises(ValueError, match="broken"):
            torch.futures.wait_all([future])

    seen: list[weakref.ref[Watched]] = []
    call: Future[None] = Future()
    call.set_exception(ValueError("broken"))
    wait_for(call)
    del call
    gc.collect()
    assert seen[0]() is None


def test_waiting_for_all_ends_with_the_first_that_fails(alone):
    gate = rpc.RRef(threading.Event())
    late = gate.rpc_async().wait(20)
    theirs: torch.futures.Future = torch.futures.Future()
    with pytest.raises(ValueError, match="invalid literal"):
        torch.futures.wait_all([late, theirs, rpc.rpc_async("alone", int, ("x",))])
    assert not late.done()
    gate.local_value().set()
    theirs.set_result(5)
    assert torch.futures.wait_all([late, theirs]) == [True, 5]
    failed: torch.futures.Future = torch.futures.Future()
    failed.set_exception(KeyError("theirs"))
    with pytest.raises(KeyError, match="theirs"):
        torch.futures.wait_all([late, failed])


def test_waiting_for_futures_of_torch_alone_is_left_to_torch():
    theirs: torch.futures.Future = torch.futures.Future()
    theirs.set_result(5)
    assert torch.futures.wait_all([theirs]) == [5]
    assert torch.futures.wait_all([]) == []
    with pytest.raises(TypeError, match="incompatible function arguments"):
        torch.futures.wait_all([3])


def test_callbacks_run_in_the_context_that_hung_them_up(alone):
    seen = []
    with dist_autograd.context() as context_id:
        call = rpc.rpc_async("alone", threading.get_ident)
        following = call.then(lambda _: seen.append(dist_autograd._current_context()._context_id()))
        following.wait()
    assert seen == [context_id]


def test_a_future_of_torch_settles_one_of_ours():
    theirs: torch.futures.Future = torch.futures.Future()
    ours = outcome_of(theirs)
    assert not ours.done()
    theirs.set_exception(KeyError("gone"))
    with pytest.raises(KeyError, match="gone"):
        ours.wait(10)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (CallTimeout("late"), "RPC ran for more than set timeout: late"),
        (WorkerLost("worker 'b' was lost"), "worker 'b' was lost"),
        (UnknownWorker("no worker 'b'"), "could not find destination: no worker 'b'"),
    ],
)
def test_an_error_is_what_both_call_it(error, words):
    error.add_note("a note")
    made = failures.as_torch(error)
    assert isinstance(made, RuntimeError)
    assert isinstance(made, type(error))
    assert str(made) == words
    assert made.__notes__ == ["a note"]
    assert failures.as_torch(made) is made


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_function_that_exits_elsewhere_does_not_end_the_program_here(alone, kind):
    for call in (
        lambda: rpc.rpc_sync("alone", end_by, (kind,), timeout=60),
        lambda: rpc.rpc_async("alone", end_by, (kind,)).wait(),
        lambda: torch.futures.wait_all([rpc.rpc_async("alone", end_by, (kind,))]),
    ):
        with pytest.raises(RuntimeError, match=f"{kind.__name__}: enough") as caught:
            call()
        assert "raised on worker 'alone'" in caught.value.__notes__[0]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_value_of_ones_own_whose_function_exits_does_not_end_the_program(alone, kind):
    reference = rpc.remote("alone", end_by, (kind,))
    for read in (reference.to_here, reference.local_value):
        with pytest.raises(RuntimeError, match=f"{kind.__name__}: enough") as caught:
            read()
        assert type(caught.value.__cause__) is kind


def end_by(kind):
    raise kind("enough")


def test_an_interrupt_of_this_program_is_one():
    with pytest.raises(KeyboardInterrupt), failures.as_torch_raises():
        raise KeyboardInterrupt


def test_what_a_function_raised_stays_as_it_is():
    error = KeyError("x")
    assert failures.as_torch(error) is error


LOADING = """
from telegrad.distributed import frameworks
from telegrad.rpc.wire import kinds

plain = kinds.register

def register(kind, *parts, **options):
    assert frameworks.known, f"{kind} can arrive, but no pass knows PyTorch"
    plain(kind, *parts, **options)

kinds.register = register
import telegrad.interop.torch.framework
"""


def test_a_pass_knows_pytorch_before_its_tensors_can_arrive():
    done = subprocess.run([sys.executable, "-c", LOADING], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# Beyond PyTorch.


def test_an_unused_call_does_not_keep_a_pass_from_ending(alone):
    t = torch.ones(2, requires_grad=True)
    with dist_autograd.context() as context_id:
        rpc.rpc_sync("alone", torch.mul, args=(t, 5.0))
        loss = rpc.rpc_sync("alone", torch.mul, args=(t, 3.0)).sum()
        dist_autograd.backward(context_id, [loss])
        assert dist_autograd.get_gradients(context_id)[t].tolist() == [3, 3]


def test_an_optimiser_of_nothing_steps_nothing_as_pytorchs_does(alone):
    optimizer = DistributedOptimizer(torch.optim.SGD, [], lr=0.5)
    with dist_autograd.context() as context_id:
        optimizer.step(context_id)
    assert optimizer.remote_optimizers == []


def test_an_optimiser_has_what_telegrads_own_has(alone):
    parameter = torch.ones(2, requires_grad=True)
    optimizer = DistributedOptimizer(torch.optim.SGD, [rpc.RRef(parameter)], lr=0.5)
    with dist_autograd.context() as context_id:
        dist_autograd.backward(context_id, [(parameter * 2).sum()])
        assert optimizer.clip_grad_norm_(context_id, 1.0) == pytest.approx(8**0.5)
        optimizer.step(context_id)
    assert parameter.tolist() == pytest.approx([1 - 0.5 / 2**0.5] * 2, rel=1e-5)
    assert len(optimizer.remote_optimizers) == 1


def test_a_worker_that_is_there_already_is_not_made_again(alone):
    with pytest.raises(RuntimeError, match="already initialized"):
        rpc.init_rpc("again", rank=0, world_size=1)


def test_a_timeout_that_is_none_is_a_runtime_error(alone):
    with pytest.raises(RuntimeError, match="0 or more seconds, got -3"):
        rpc._set_rpc_timeout(-3)
    assert rpc.get_rpc_timeout() == 60


def test_a_timeout_holds_for_calls_to_oneself(alone):
    gate = rpc.RRef(threading.Event())
    late = threading.Timer(5, gate.local_value().set)
    late.start()
    with pytest.raises(RuntimeError, match="RPC ran for more than set timeout"):
        gate.rpc_sync(timeout=0.05).wait()
    assert not gate.local_value().is_set()
    gate.local_value().set()
    late.cancel()
    assert gate.rpc_sync().wait()


class Gate:
    """Something with a marked method that waits for an event of its process."""

    opened = threading.Event()

    def pass_through(self):
        return Gate.opened.wait(20)

    @staticmethod
    @rpc.functions.async_execution
    def pass_later():
        Gate.opened.wait(20)
        future = torch.futures.Future()
        future.set_result(True)
        return future


def test_a_timeout_names_what_the_program_called_not_what_carried_it(alone):
    name = rpc.get_worker_info().name
    Gate.opened.clear()
    made = rpc.remote(name, Gate.pass_later)
    gate = rpc.RRef(Gate())
    try:
        calls = {
            "'pass_through'": lambda: gate.rpc_sync(timeout=0.05).pass_through(),
            "'pass_through' ": lambda: gate.rpc_async(timeout=0.05).pass_through().wait(),
            "'Gate.pass_later'": lambda: rpc.rpc_sync(name, Gate.pass_later, timeout=0.05),
            "'the type of OwnerRRef": lambda: made._get_type(timeout=0.05),
        }
        for said, call in calls.items():
            with pytest.raises(RuntimeError, match=f"did not answer {said}"):
                call()
    finally:
        Gate.opened.set()
    assert made.to_here() is True


def test_the_timeout_of_remote_is_that_of_the_value(tmp_path):
    with other_worker(tmp_path):
        gate = rpc.remote("b", threading.Event)
        # Asked once: below, the time would be over for this question as well.
        assert gate._get_type() is threading.Event
        made = gate.remote(timeout=1e-9).wait(20)
        with pytest.raises(RuntimeError, match="RPC ran for more than set timeout"):
            made._get_future().wait()
        with pytest.raises(RuntimeError, match="RRef creation via"):
            made.to_here()
        # It was asked for all the same.
        gate.rpc_sync().set()
        assert made.rpc_sync().__add__(1) == 2
        with pytest.raises(RuntimeError, match="0 or more seconds, got -3"):
            rpc.remote("b", len, ("x",), timeout=-3)


def test_calls_without_a_worker_say_what_to_do():
    with pytest.raises(RuntimeError, match="RPC has not been initialized"):
        rpc._set_rpc_timeout(5)
    with pytest.raises(RuntimeError, match="RPC has not been initialized"):
        rpc.rpc_sync("b", len, args=("x",))
    with pytest.raises(RuntimeError, match="Did you initialize the RPC framework"):
        rpc.RRef(1)
    with pytest.raises(RuntimeError, match="RPC has not been initialized"):
        rpc.api._require_initialized(len)("x")


def test_a_function_that_requires_a_worker_runs_where_there_is_one(alone):
    assert rpc.api._require_initialized(len)("abc") == 3


def test_a_program_may_name_the_timeout_that_is_none_of_its_own(alone):
    unset = rpc.api.UNSET_RPC_TIMEOUT
    assert rpc.rpc_sync("alone", len, ("abc",), timeout=unset) == 3
    assert rpc.rpc_async("alone", len, ("abc",), timeout=unset).wait() == 3
    assert rpc.remote("alone", len, ("abc",), timeout=unset).to_here(timeout=unset) == 3
