"""Modules: their parts, their state, their hooks, and how they look."""

import copy
import pickle
from collections import OrderedDict
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch

import telegrad as tg
from telegrad import nn
from telegrad.errors import DTypeError, ShapeError, UsageError
from telegrad.graph import hooks


class Block(nn.Module):
    """A module with everything in it."""

    def __init__(self, lib: Any = nn) -> None:
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.scale = nn.Parameter(np.ones(3, np.float32))
        self.absent: nn.Parameter | None = None
        self.register_buffer("count", tg.tensor(0))
        self.register_buffer("scratch", tg.zeros(2), persistent=False)
        self.rest = nn.Sequential(nn.ReLU(), nn.Linear(3, 1))

    def forward(self, x: Any) -> Any:
        return self.rest(self.first(x) * self.scale)


def test_parameters_are_found_in_the_order_they_were_set() -> None:
    names = [name for name, _ in Block().named_parameters()]
    assert names == ["scale", "first.weight", "first.bias", "rest.1.weight", "rest.1.bias"]
    assert len(list(Block().parameters(recurse=False))) == 1


def test_buffers_modules_and_children_are_found() -> None:
    block = Block()
    assert [name for name, _ in block.named_buffers()] == ["count", "scratch"]
    assert [name for name, _ in block.named_modules()] == ["", "first", "rest", "rest.0", "rest.1"]
    assert list(block.children()) == [block.first, block.rest]
    assert [name for name, _ in block.named_children()] == ["first", "rest"]


def test_a_shared_parameter_counts_once_but_is_named_twice_in_the_state() -> None:
    block = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    block[1].weight = block[0].weight
    assert len(list(block.parameters())) == 3
    assert len(block.state_dict()) == 4


def test_the_state_has_parameters_and_persistent_buffers() -> None:
    names = ["scale", "count", "first.weight", "first.bias", "rest.1.weight", "rest.1.bias"]
    assert list(Block().state_dict()) == names
    assert list(nn.Linear(1, 1).state_dict(prefix="head.")) == ["head.weight", "head.bias"]


def test_a_state_is_loaded_into_the_same_parameters() -> None:
    block, other = Block(), Block()
    kept = block.first.weight
    report = block.load_state_dict(other.state_dict())
    assert report == ([], [])
    assert block.first.weight is kept
    x = tg.randn(4, 2)
    np.testing.assert_array_equal(block(x).detach().numpy(), other(x).detach().numpy())


def test_a_state_of_pytorch_is_loaded_as_it_is() -> None:
    theirs = torch.nn.Linear(3, 2)
    ours = nn.Linear(3, 2)
    assert ours.load_state_dict(theirs.state_dict()) == ([], [])
    np.testing.assert_array_equal(ours.weight.detach().numpy(), theirs.weight.detach().numpy())


def test_keys_that_do_not_fit_are_listed_and_nothing_changes() -> None:
    block = Block()
    state = dict(Block().state_dict())
    del state["scale"]
    state["scales"] = tg.ones(3)
    before = {name: value.numpy().copy() for name, value in block.state_dict().items()}
    with pytest.raises(UsageError, match="missing scale; unexpected scales"):
        block.load_state_dict(state)
    for name, value in block.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[name])
    report = block.load_state_dict(state, strict=False)
    assert report.missing_keys == ["scale"]
    assert report.unexpected_keys == ["scales"]


def test_shapes_that_do_not_fit_are_listed_and_nothing_changes() -> None:
    block = Block()
    state = {**Block().state_dict(), "first.weight": tg.ones((5, 2)), "scale": tg.zeros(3)}
    with pytest.raises(ShapeError, match=r"first.weight has shape \(3, 2\), .* \(5, 2\)"):
        block.load_state_dict(state, strict=False)
    np.testing.assert_array_equal(block.scale.detach().numpy(), np.ones(3))


def test_what_is_no_state_is_refused() -> None:
    with pytest.raises(UsageError, match=r"state dict, a mapping.*got list"):
        Block().load_state_dict([1])
    with pytest.raises(UsageError, match="for scale in the state dict, got str"):
        Block().load_state_dict({**Block().state_dict(), "scale": "1"})
    with pytest.raises(UsageError, match="scale is float32, the state's is complex128"):
        Block().load_state_dict({**Block().state_dict(), "scale": np.ones(3) * 1j})


def test_train_and_eval_reach_all_modules() -> None:
    block = Block()
    assert block.eval() is block
    assert not any(module.training for module in block.modules())
    assert all(module.training for module in block.train().modules())
    with pytest.raises(UsageError, match="True or False"):
        block.train("yes")  # type: ignore[arg-type]


def test_to_changes_floating_values_in_the_same_parameters() -> None:
    block = Block()
    kept = block.first.weight
    block(tg.ones((1, 2))).sum().backward()
    assert block.to(tg.float64) is block
    assert block.first.weight is kept
    assert kept.dtype == tg.float64
    assert kept.requires_grad
    assert kept.grad.dtype == tg.float64
    assert block.count.dtype == tg.int64
    assert block.float().scratch.dtype == tg.float32
    assert block.to("cpu").double().scale.dtype == tg.float64


def test_to_refuses_what_can_not_be_trained_and_changes_nothing() -> None:
    block = nn.Linear(1, 1)
    block.turn = nn.Parameter(tg.tensor([1j]))
    with pytest.raises(UsageError, match="real or complex dtype for a module, got int64"):
        block.to(tg.int64)
    with pytest.raises(DTypeError):
        block.to(tg.float64)
    assert block.weight.dtype == tg.float32


def test_zero_grad_forgets_gradients() -> None:
    block = Block()
    block(tg.ones((1, 2))).sum().backward()
    block.zero_grad(set_to_none=False)
    assert not block.first.weight.grad.numpy().any()
    block.zero_grad()
    assert block.first.weight.grad is None


def test_requires_grad_freezes_all_parameters() -> None:
    block = Block().requires_grad_(False)
    assert not block(tg.ones((1, 2))).requires_grad


def test_apply_visits_children_first() -> None:
    seen: list[str] = []
    Block().apply(lambda module: seen.append(type(module).__name__))
    assert seen == ["Linear", "ReLU", "Linear", "Sequential", "Block"]


def test_hooks_see_and_change_arguments_and_results() -> None:
    layer = nn.ReLU()
    before = layer.register_forward_pre_hook(lambda module, args: (args[0] - 1,))
    after = layer.register_forward_hook(lambda module, args, result: result * 10)
    watch: list[Any] = []
    layer.register_forward_hook(lambda module, args, result: watch.append(result))
    assert layer(tg.tensor([3.0])).item() == 20.0
    before.remove()
    after.remove()
    assert layer(tg.tensor([3.0])).item() == 3.0
    assert [value.item() for value in watch] == [20.0, 3.0]


def test_a_hook_on_a_module_from_another_process_replaces_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer = nn.ReLU()
    with monkeypatch.context() as there:
        there.setattr(hooks, "_next_id", count().__next__)
        layer.register_forward_hook(add_one)
    here = pickle.loads(pickle.dumps(layer))
    monkeypatch.setattr(hooks, "_next_id", count().__next__)  # each process counts from 0
    with here.register_forward_hook(add_one):
        assert here(tg.tensor(1.0)).item() == 3.0
    assert here(tg.tensor(1.0)).item() == 2.0


def add_one(module: nn.Module, args: Any, result: Any) -> Any:
    return result + 1


def test_its_repr_is_pytorchs() -> None:
    def build(lib: Any) -> Any:
        return lib.Sequential(
            lib.Linear(2, 3, bias=False),
            lib.ModuleDict({"norm": lib.LayerNorm(3), "squash": lib.Tanh()}),
            lib.Conv2d(1, 2, 3, padding=1),
            lib.Conv2d(4, 4, 3, 2, 1, 2, groups=2, bias=False, padding_mode="circular"),
            lib.GRU(3, 4, num_layers=2),
            lib.Embedding(5, 3, padding_idx=0),
            lib.Softmax(dim=1),
            lib.BatchNorm2d(2),
            lib.AvgPool2d(2),
            lib.MaxPool2d(2),
            lib.GELU(),
        )

    assert repr(build(nn)) == repr(build(torch.nn))


def test_copies_and_pickles_keep_parameters() -> None:
    block = Block()
    for other in (copy.deepcopy(block), pickle.loads(pickle.dumps(block))):
        assert [type(p) for p in other.parameters()] == [nn.Parameter] * 5
        assert other.first.weight is not block.first.weight
        assert other.first.weight.requires_grad
        np.testing.assert_array_equal(
            other.first.weight.detach().numpy(), block.first.weight.detach().numpy()
        )


def test_a_copy_keeps_what_is_shared() -> None:
    block = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    block[1].weight = block[0].weight
    other = copy.deepcopy(block)
    assert other[1].weight is other[0].weight


def test_a_parameter_is_not_replaced_by_something_else() -> None:
    layer = nn.Linear(2, 2)
    with pytest.raises(UsageError, match=r"Parameter or None as 'weight' of Linear, got Tensor"):
        layer.weight = tg.ones((2, 2))  # type: ignore[assignment]
    layer.bias = None
    assert list(layer.state_dict()) == ["weight"]
    block = Block()
    with pytest.raises(UsageError, match="buffer 'count'"):
        block.count = 3  # type: ignore[assignment]
    block.count = None  # type: ignore[assignment]
    with pytest.raises(UsageError, match="buffer 'count'"):
        block.count = 3  # type: ignore[assignment]


def test_a_module_is_not_replaced_by_what_it_gives() -> None:
    block = Block()
    with pytest.raises(UsageError, match=r"Module or None as 'first' of Block, got Tensor"):
        block.first = block.first(tg.ones((1, 2)))
    block.first = nn.Linear(2, 3, bias=False)
    block.rest = None  # type: ignore[assignment]
    assert list(block.state_dict()) == ["scale", "count", "first.weight"]


def test_a_parameter_in_the_place_of_a_buffer_is_a_parameter_alone() -> None:
    module = nn.Module()
    module.register_buffer("scale", tg.ones(2))
    module.scale = nn.Parameter(tg.ones(2))  # type: ignore[assignment]
    assert [name for name, _ in module.named_parameters()] == ["scale"]
    assert list(module.named_buffers()) == []


def test_a_buffer_that_was_deleted_may_come_back_as_an_attribute_that_is_not_saved() -> None:
    module = nn.Module()
    module.register_buffer("mean", tg.zeros(2))
    del module.mean
    assert not list(module.named_buffers())
    module.mean = tg.ones(2)
    assert not module.state_dict()


def test_a_parameter_is_refused_as_a_buffer() -> None:
    module = nn.Module()
    with pytest.raises(UsageError, match=r"buffer 'scale', got a Parameter.*detach\(\)"):
        module.register_buffer("scale", nn.Parameter(tg.ones(2)))
    assert list(module.parameters()) == []


def test_a_module_inside_itself_has_no_state() -> None:
    block = nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.ReLU()))
    block[1][0].parent = block
    for ask in (block.state_dict, lambda: block.load_state_dict({})):
        with pytest.raises(UsageError, match=r"Sequential at '1.0.parent' is inside itself"):
            ask()
    assert len(list(block.parameters())) == 2


def test_bad_names_and_kinds_are_refused() -> None:
    module = nn.Module()
    with pytest.raises(UsageError, match="without dots"):
        module.register_parameter("a.b", None)
    with pytest.raises(UsageError, match="already has an attribute 'forward'"):
        module.add_module("forward", nn.ReLU())
    with pytest.raises(UsageError, match="Parameter or None"):
        module.register_parameter("a", tg.ones(2))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="expected a Module or None as 'a', got int"):
        module.add_module("a", 3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="Tensor or None"):
        module.register_buffer("a", 3)  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError, match="Module has no forward"):
        module(1)


def test_a_sequence_of_modules_is_a_list() -> None:
    block = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    block.append(nn.Linear(3, 1)).insert(1, nn.Tanh())
    assert [type(m).__name__ for m in block] == ["Linear", "Tanh", "ReLU", "Linear"]
    assert isinstance(block[1:3], nn.Sequential)
    assert list(block.state_dict()) == ["0.weight", "0.bias", "3.weight", "3.bias"]
    del block[1]
    block[0] = nn.Linear(2, 3, bias=False)
    assert list(block.state_dict()) == ["0.weight", "2.weight", "2.bias"]
    assert len(block) == 3
    named = nn.Sequential({"in": nn.Linear(1, 1), "out": nn.Linear(1, 1, bias=False)})
    assert list(named.state_dict()) == ["in.weight", "in.bias", "out.weight"]
    with pytest.raises(UsageError, match=r"Module in a container, got function; wrap a function"):
        nn.Sequential(tg.relu)
    with pytest.raises(UsageError, match=r"got list; write Sequential\(\*modules\)"):
        nn.Sequential([nn.ReLU()])
    with pytest.raises(UsageError, match="expected modules in a list, got ReLU"):
        nn.ModuleList(nn.ReLU())  # type: ignore[arg-type]


def test_a_part_of_a_sequence_keeps_its_names_as_in_pytorch() -> None:
    def parts(lib: Any) -> list[list[str]]:
        line = lib.Linear(1, 1)
        named = lib.Sequential(OrderedDict(a=line, b=lib.ReLU(), c=line))
        numbered, listed = lib.Sequential(line, lib.ReLU(), line), lib.ModuleList([line, line])
        return [list(each.state_dict()) for each in (named[1:], numbered[::2], listed[1:])]

    assert parts(nn) == parts(torch.nn)


def test_what_is_appended_to_a_part_of_a_sequence_replaces_nothing() -> None:
    part = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Tanh())[1:].append(nn.Sigmoid())
    assert [type(module).__name__ for module in part] == ["ReLU", "Tanh", "Sigmoid"]


def test_the_text_of_a_sequence_shows_a_module_as_often_as_it_is_called() -> None:
    def text(lib: Any) -> str:
        act = lib.ReLU()
        return repr(lib.Sequential(lib.Sigmoid(), act, lib.Tanh(), act))

    assert text(nn).count("ReLU()") == 2
    assert text(nn) == text(torch.nn)


def test_the_text_of_layers_that_pytorch_shows_otherwise() -> None:
    assert repr(nn.Dropout(0.3)) == "Dropout(p=0.3)"
    assert "embed_dim=4, num_heads=2" in repr(nn.MultiheadAttention(4, 2))


def test_lists_and_dicts_of_modules() -> None:
    several = nn.ModuleList([nn.Linear(1, 1)]).extend([nn.ReLU()])
    assert len(several) == 2
    assert several[-1] is list(several)[1]
    by_name = nn.ModuleDict({"a": nn.ReLU()})
    by_name["b"] = nn.Linear(1, 1)
    assert list(by_name) == ["a", "b"]
    assert "b" in by_name
    assert [name for name, _ in by_name.items()] == ["a", "b"]
    assert isinstance(by_name.pop("a"), nn.ReLU)
    assert len(by_name.values()) == 1
    with pytest.raises(KeyError, match="expected one of b"):
        by_name["c"]
    by_name["c"] = nn.Tanh()
    del by_name["b"]
    assert list(by_name) == ["c"]
    assert list(nn.Sequential(by_name)) == [by_name]
    by_name.clear()
    assert not len(by_name)


def test_a_layer_that_reads_nothing_gives_its_bias() -> None:
    layer = nn.Linear(0, 2)
    assert layer.weight.shape == (2, 0)
    assert layer(tg.ones((3, 0))).tolist() == [[0.0, 0.0]] * 3


def test_sizes_may_be_numpys_integers() -> None:
    classes = np.array([0, 2, 1]).max() + 1
    assert nn.Linear(2, classes).weight.shape == (3, 2)
    assert nn.Conv2d(1, classes, classes)(tg.ones((1, 1, 4, 4))).shape == (1, 3, 2, 2)
    assert nn.LayerNorm(classes).normalized_shape == (3,)


@pytest.mark.parametrize("lib", [tg, torch], ids=["telegrad", "torch"])
def test_double_and_float_leave_complex_parameters_alone(lib: Any) -> None:
    model = lib.nn.Sequential(
        lib.nn.Linear(2, 2, dtype=lib.complex64), lib.nn.Linear(2, 2), lib.nn.BatchNorm2d(2)
    )
    before = model[0].weight.tolist()
    for convert, real in ((model.double, lib.float64), (model.float, lib.float32)):
        assert convert() is model
        assert model[0].weight.dtype == lib.complex64
        assert model[0].weight.tolist() == before
        assert model[1].weight.dtype == model[2].running_mean.dtype == real
        assert model[2].num_batches_tracked.dtype == lib.int64


def test_a_list_of_modules_gives_one_back_and_is_added_to_others() -> None:
    first, second, third = nn.Linear(1, 1), nn.Linear(1, 2), nn.Linear(2, 1)
    held = nn.ModuleList([first, second])
    both = held + [third]
    assert type(both) is nn.ModuleList
    assert list(both) == [first, second, third]
    assert list(held + nn.ModuleList([third])) == [first, second, third]
    assert both.pop() is third
    assert both.pop(0) is first
    assert list(both.state_dict()) == ["0.weight", "0.bias"]
    assert list(held) == [first, second]
    with pytest.raises(IndexError):
        held.pop(2)
