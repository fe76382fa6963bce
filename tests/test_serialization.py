"""``save`` and ``load``: what goes in comes out, and nothing else is taken for it."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad import nn
from telegrad.autograd import forward_ad
from telegrad.errors import GradientError, UsageError
from telegrad.serialization import load, save


def state() -> dict[str, Any]:
    return {
        "weight": tg.randn(3, 2, generator=tg.Generator(1)),
        "bias": tg.tensor(np.arange(3.0)),
        "count": tg.tensor(7),
        "mask": tg.tensor([True, False]),
        "turned": tg.tensor(np.arange(6.0).reshape(2, 3)).T,
        "empty": tg.zeros((0, 4)),
    }


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    save(state(), tmp_path / "a.safetensors")
    found = load(tmp_path / "a.safetensors")
    assert set(found) == set(state())
    for name, value in state().items():
        assert found[name].dtype == value.dtype
        assert found[name].shape == value.shape
        np.testing.assert_array_equal(found[name].numpy(), value.numpy())


def test_a_module_is_restored(tmp_path: Path) -> None:
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    save(model.state_dict(), tmp_path / "m")
    other.load_state_dict(load(tmp_path / "m"))
    np.testing.assert_array_equal(other.weight.detach().numpy(), model.weight.detach().numpy())


def test_pytorch_reads_what_we_save(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    model, theirs = nn.BatchNorm2d(3), torch.nn.BatchNorm2d(3)
    save(model.state_dict(), tmp_path / "m")
    theirs.load_state_dict(load_file(tmp_path / "m"))
    assert theirs.num_batches_tracked.shape == ()


def test_we_read_what_pytorch_saves(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    model, theirs = nn.GRU(3, 2), torch.nn.GRU(3, 2)
    save_file(theirs.state_dict(), tmp_path / "m")
    model.load_state_dict(load(tmp_path / "m"))
    np.testing.assert_array_equal(
        model.state_dict()["weight_hh_l0"].numpy(), theirs.weight_hh_l0.detach().numpy()
    )


@pytest.mark.parametrize("share", [0.0, 0.02, 0.3, 0.99])
def test_a_file_cut_short_is_refused(tmp_path: Path, share: float) -> None:
    path = tmp_path / "a"
    save(state(), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(UsageError, match="cut short or damaged"):
        load(path)


def test_every_altered_byte_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a"
    save({"w": tg.ones(3), "b": tg.zeros(2)}, path)
    content = path.read_bytes()
    body = 8 + int.from_bytes(content[:8], "little")
    for place in [0, 8, 20, *range(body, len(content))]:
        changed = bytearray(content)
        changed[place] ^= 0x11
        path.write_bytes(bytes(changed))
        with pytest.raises(UsageError):
            load(path)


def test_a_pickle_is_refused_and_not_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "ran"),)

    (tmp_path / "a").write_bytes(pickle.dumps(Trap()))
    torch.save({"w": torch.ones(2)}, tmp_path / "b")
    for name in ("a", "b"):
        with pytest.raises(UsageError, match="pickle"):
            load(tmp_path / name)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("dtype", "name"), [("bfloat16", "BF16"), ("float16", "float16")])
def test_a_dtype_that_we_lack_is_named(tmp_path: Path, dtype: str, name: str) -> None:
    from safetensors.torch import save_file

    save_file({"w": torch.ones(2, dtype=getattr(torch, dtype))}, tmp_path / "a")
    with pytest.raises(UsageError, match=rf"dtypes that telegrad has, got {name} in .*float32"):
        load(tmp_path / "a")


@pytest.mark.parametrize("dtype", [">f4", ">i8", ">u2"])
def test_numbers_are_saved_whatever_the_order_of_their_bytes(tmp_path: Path, dtype: str) -> None:
    numbers = np.arange(6).reshape(2, 3).astype(dtype)
    save({"w": numbers}, tmp_path / "a")
    np.testing.assert_array_equal(load(tmp_path / "a")["w"].numpy(), numbers)


def test_a_missing_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none")


def test_saving_where_no_file_can_be_names_what_the_user_named(tmp_path: Path) -> None:
    missing = tmp_path / "none" / "a"
    with pytest.raises(FileNotFoundError, match="expected an existing directory") as caught:
        save({"w": tg.ones(2)}, missing)
    assert caught.value.filename == str(missing)
    assert str(missing.parent) in str(caught.value)
    with pytest.raises(IsADirectoryError, match="got a directory") as caught:
        save({"w": tg.ones(2)}, tmp_path)
    assert caught.value.filename == str(tmp_path)


def test_saving_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    save({"w": tg.ones(2)}, path)
    before = path.read_bytes()

    def fail(*args: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space"):
        save({"w": tg.zeros(2)}, path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_saving_over_a_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a"
    save({"w": tg.ones(2)}, path)
    path.chmod(0o640)
    save({"w": tg.zeros(2)}, path)
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("exists", [True, False])
def test_saving_over_a_link_writes_what_it_leads_to(tmp_path: Path, exists: bool) -> None:
    (tmp_path / "elsewhere").mkdir()
    there, link = tmp_path / "elsewhere" / "a", tmp_path / "link"
    link.symlink_to(there)
    if exists:
        save({"w": tg.zeros(2)}, there)
    save({"w": tg.ones(2)}, link)
    assert link.is_symlink()
    assert load(there)["w"].tolist() == [1.0, 1.0]
    assert [p.name for p in there.parent.iterdir()] == ["a"]


def test_saving_over_a_pipe_leaves_it_there(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match=r"expected the name of a file .* got '.*pipe'"):
        save({"w": tg.ones(2)}, tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize(
    "name", ["a" * 255, "ä" * 127, "\N{GRINNING FACE}" * 63], ids=["1 byte", "2", "4"]
)
def test_a_name_may_be_as_long_as_the_system_allows(tmp_path: Path, name: str) -> None:
    save({"w": tg.ones(2)}, tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_what_the_format_can_not_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="complex64"):
        save({"w": tg.tensor([1j])}, tmp_path / "a")
    with pytest.raises(UsageError, match="float16"):
        save({"w": np.ones(1, np.float16)}, tmp_path / "a")
    with pytest.raises(UsageError, match="'w', got list"):
        save({"w": [1.0]}, tmp_path / "a")
    with pytest.raises(UsageError, match="state_dict"):
        save(nn.Linear(1, 1), tmp_path / "a")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="names as keys"):
        save({1: tg.ones(1)}, tmp_path / "a")  # type: ignore[dict-item]
    with pytest.raises(UsageError, match="another name than '__metadata__'"):
        save({"__metadata__": tg.ones(1)}, tmp_path / "a")
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(tg.ones(1), tg.ones(1))
        with pytest.raises(GradientError, match=r"without tangents under 'w'.* use detach\(\)"):
            save({"w": dual}, tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_a_name_that_can_not_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a name that UTF-8 can write, got 'a\\ud800'"):
        tg.save({"a\ud800": tg.ones(1)}, tmp_path / "state")
    assert not list(tmp_path.iterdir())
