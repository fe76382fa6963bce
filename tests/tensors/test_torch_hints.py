"""What somebody who knows PyTorch or NumPy types, and what telegrad says or does."""

import copy
import pickle
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import telegrad as tg
import telegrad.distributed
import telegrad.profiler
import telegrad.testing
from telegrad import nn, optim
from telegrad.nn import torch_names as of_modules
from telegrad.optim import torch_names as of_optimisers
from telegrad.tensors import torch_names

torch = pytest.importorskip("torch")

MATRIX = [[1.0, -2.0, 3.0], [0.5, 4.0, -6.0]]


NAMES = (
    (tg, torch_names.FUNCTIONS),
    (tg.linalg, torch_names.LINALG),
    (tg.autograd, torch_names.AUTOGRAD),
    (tg.autograd.functional, torch_names.FUNCTIONAL),
    (nn, of_modules.CLASSES),
    (nn.functional, of_modules.FUNCTIONS),
    (nn.utils, of_modules.UTILS),
    (optim, of_optimisers.OPTIMIZERS),
    (optim.lr_scheduler, of_optimisers.SCHEDULERS),
)


def matrix() -> Any:
    return tg.tensor(MATRIX, requires_grad=True)


@pytest.mark.parametrize("name", sorted(torch_names.METHODS))
def test_a_familiar_method_that_is_missing_says_what_to_write(name: str) -> None:
    x = matrix()
    assert not hasattr(x, name)
    assert not hasattr(tg.Tensor, name)
    assert name not in dir(x)
    with pytest.raises(AttributeError, match=f"a Tensor has no '{name}': ..."):
        getattr(x, name)


@pytest.mark.parametrize("name", sorted(torch_names.FUNCTIONS))
def test_a_familiar_function_that_is_missing_says_what_to_write(name: str) -> None:
    # A package that another test has imported is there, of course.
    if hasattr(tg, name):
        assert isinstance(getattr(tg, name), ModuleType)
    with pytest.raises(AttributeError, match=f"module 'telegrad' has no attribute '{name}': ..."):
        tg.__getattr__(name)  # type: ignore[attr-defined]


def test_every_name_that_is_advised_exists() -> None:
    rows = [
        row
        for table in (torch_names.METHODS, of_modules.METHODS, *(rows for _, rows in NAMES))
        for row in table.items()
    ]
    said = " ".join(way.format(name) for name, way in rows)
    for path in sorted(set(re.findall(r"(?<!import )telegrad((?:\.\w+)+)", said))):
        found: Any = tg
        for name in path.strip(".").split("."):
            found = getattr(found, name)
    for name in sorted(set(re.findall(r"\bx\.(\w+)", said))):
        assert hasattr(tg.Tensor, name), name
    for name in sorted(set(re.findall(r"\bmodule\.(\w+)", said))):
        assert hasattr(nn.Module, name), name
    for name in sorted(set(re.findall(r"(?<!\.)\bnn\.(\w+)", said))):
        assert hasattr(nn, name), name


def test_what_is_advised_for_a_remainder_with_the_sign_of_the_dividend_is_that() -> None:
    x, y = matrix().detach(), 1.5
    assert "write x - telegrad.trunc(x / y) * y" in torch_names.FUNCTIONS["fmod"]
    expected = torch.fmod(torch.tensor(MATRIX), y).tolist()
    assert (x - tg.trunc(x / y) * y).tolist() == expected


@pytest.mark.parametrize("name", sorted(of_modules.METHODS))
def test_a_familiar_method_that_a_module_lacks_says_what_to_write(name: str) -> None:
    layer = nn.Linear(2, 1)
    assert not hasattr(layer, name)
    assert name not in dir(layer)
    with pytest.raises(AttributeError, match=f"a Module has no '{name}': ..."):
        getattr(layer, name)


def test_a_module_may_have_parts_of_those_names() -> None:
    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.half = nn.Linear(2, 1)
            self.register_buffer("type", tg.zeros(1))

        def compile(self) -> str:
            return "mine"

    block = Split()
    assert block.compile() == "mine"
    assert list(block.state_dict()) == ["type", "half.weight", "half.bias"]
    assert {"half", "type", "compile"} <= set(dir(block))


@pytest.mark.parametrize(
    ("module", "rows"), NAMES[1:], ids=[each.__name__ for each, _ in NAMES[1:]]
)
def test_a_familiar_name_that_a_module_of_ours_lacks_says_what_to_write(
    module: ModuleType, rows: dict[str, str]
) -> None:
    for name in rows:
        assert not hasattr(module, name)
        with pytest.raises(
            AttributeError, match=f"module '{module.__name__}' has no attribute '{name}': ..."
        ):
            getattr(module, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'nonsense'$"):
        _ = module.nonsense


def test_what_is_advised_for_stacks_of_vectors_gives_them() -> None:
    pair = [tg.tensor([1.0, 2.0]), tg.tensor([3.0, 4.0])]
    for name in ("hstack", "vstack"):
        (way,) = re.findall(r"of vectors (telegrad\.\w+)\(tensors\)", torch_names.FUNCTIONS[name])
        mine = getattr(tg, way.removeprefix("telegrad."))(pair)
        assert mine.tolist() == getattr(np, name)([x.numpy() for x in pair]).tolist()


ADVISED: list[tuple[str, dict[str, Any]]] = [
    ("logdet", {"x": [[2.0, 1.0], [1.0, 3.0]]}),
    ("cov", {"x": MATRIX}),
    ("bincount", {"x": [0, 2, 2, 1, 2]}),
    ("trapezoid", {"y": [1.0, 3.0, -1.0], "x": [0.0, 1.0, 3.0]}),
    ("cdist", {"x": MATRIX, "y": [[0.0, 1.0, 2.0]]}),
    ("lerp", {"x": [1.0, 2.0], "y": [3.0, 5.0], "weight": 0.25}),
    ("nansum", {"x": [1.0, float("nan"), 3.0]}),
    ("logspace", {"start": 0.0, "stop": 2.0, "count": 5}),
    ("complex", {"x": [1.0, 2.0], "y": [3.0, -4.0]}),
    ("polar", {"x": [1.0, 2.0], "y": [0.5, -2.0]}),
    ("angle", {"x": [1.0 + 2.0j, -1.0j]}),
    ("view_as_real", {"x": [1.0 + 2.0j, -1.0j]}),
    ("view_as_complex", {"x": [[1.0, 2.0], [0.0, -1.0]]}),
]


@pytest.mark.parametrize(("name", "given"), ADVISED)
def test_what_is_advised_gives_what_pytorch_gives(name: str, given: dict[str, Any]) -> None:
    written = torch_names.FUNCTIONS[name].removeprefix("write ")
    written, _, definition = written.partition(", with d = ")
    mine: dict[str, Any] = {
        key: tg.tensor(value) if isinstance(value, list) else value for key, value in given.items()
    }
    known = {"telegrad": tg, "count": 3, **mine}
    if definition:
        known["d"] = eval(definition, known)
    found = eval(written, known)
    theirs = [torch.tensor(x) if isinstance(x, list) else x for x in given.values()]
    expected = getattr(torch, name)(*theirs)
    assert str(found.dtype) == str(expected.dtype).removeprefix("torch.")
    assert np.allclose(found.numpy(), expected.numpy())


@pytest.mark.parametrize(
    ("name", "options"),
    [("ExponentialLR", {"gamma": 0.5}), ("MultiStepLR", {"milestones": [2, 3], "gamma": 0.5})],
)
def test_an_advised_schedule_has_the_rates_of_pytorchs(name: str, options: dict[str, Any]) -> None:
    mine = optim.SGD([nn.Parameter(tg.ones(1))], lr=0.1)
    theirs = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    written = of_optimisers.SCHEDULERS[name].removeprefix("write ")
    known = {"LambdaLR": optim.lr_scheduler.LambdaLR, "optimizer": mine, **options}
    schedule = eval(written, known)
    expected = getattr(torch.optim.lr_scheduler, name)(theirs, **options)
    for _ in range(5):
        assert schedule.get_last_lr() == pytest.approx(expected.get_last_lr())
        for optimizer, rates in ((mine, schedule), (theirs, expected)):
            optimizer.step()
            rates.step()


def test_a_name_that_nobody_expects_gets_the_usual_error() -> None:
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'nonsense'"):
        _ = matrix().nonsense
    with pytest.raises(AttributeError, match=r"module 'telegrad' has no attribute 'nonsense'$"):
        _ = tg.nonsense  # type: ignore[attr-defined]


def test_copies_and_pickles_take_no_notice() -> None:
    x = matrix()
    for other in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert other.requires_grad
        assert other.tolist() == x.tolist()


OPTIONS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: x.sum(dim=0), "sum() has no option 'dim': use axis="),
    (lambda x: x.mean(0, keepdim=True), "mean() has no option 'keepdim': use keepdims="),
    (lambda x: x.softmax(dim=-1), "softmax() has no option 'dim': use axis="),
    (lambda x: x.var(unbiased=False), "var() has no option 'unbiased': use correction=1 for"),
    (lambda x: x.norm(p=1), "norm() has no option 'p': use ord="),
    (lambda x: tg.sum(x, dim=0), "sum() has no option 'dim': use axis="),
    (lambda x: tg.max(x, dim=0), "max() has no option 'dim': use axis="),
    (lambda x: tg.argmax(x, dim=0), "argmax() has no option 'dim': use axis="),
    (lambda x: tg.softmax(x, dim=0), "softmax() has no option 'dim': use axis="),
    (lambda x: tg.concat([x, x], dim=0), "concat() has no option 'dim': use axis="),
    (lambda x: tg.stack([x, x], dim=0), "stack() has no option 'dim': use axis="),
    (lambda x: tg.sort(x, dim=0), "sort() has no option 'dim': use axis="),
    (lambda x: tg.cumulative_sum(x, dim=0), "cumulative_sum() has no option 'dim': use axis="),
    (lambda x: tg.squeeze(x, dim=0), "squeeze() has no option 'dim': use axis="),
    (lambda x: tg.flip(x, dims=(0,)), "flip() has no option 'dims': use axis="),
    (lambda x: tg.roll(x, 1, dims=0), "roll() has no option 'dims': use axis="),
    (lambda x: tg.take(x, [0], dim=0), "take() has no option 'dim': use axis="),
    (lambda x: tg.take_along_axis(x, x, dim=0), "take_along_axis() has no option 'dim': use axis="),
    (lambda x: tg.tril(x, diagonal=-1), "tril() has no option 'diagonal': use k="),
    (lambda x: tg.triu(x, diagonal=1), "triu() has no option 'diagonal': use k="),
    (lambda x: tg.linalg.vector_norm(x, dim=0), "vector_norm() has no option 'dim': use axis="),
    (lambda x: tg.cumulative_prod(x, dim=0), "cumulative_prod() has no option 'dim': use axis="),
    (lambda x: tg.unstack(x, dim=0), "unstack() has no option 'dim': use axis="),
    (lambda x: tg.expand_dims(x, dim=0), "expand_dims() has no option 'dim': use axis="),
    (lambda x: tg.argsort(x, dim=0), "argsort() has no option 'dim': use axis="),
    (lambda x: tg.zeros(2, requires_grad=True), "call .requires_grad_() of the result"),
    (lambda x: nn.ReLU(inplace=True), "ReLU() has no option 'inplace': values do not alias"),
    (lambda x: nn.Dropout(0.1, inplace=True), "Dropout() has no option 'inplace': values do not"),
    (lambda x: tg.sum(x, nonsense=0), "sum() has no option 'nonsense'"),
]


@pytest.mark.parametrize(("call", "said"), OPTIONS, ids=[said for _, said in OPTIONS])
def test_a_familiar_option_that_is_missing_says_which_to_use(
    call: Callable[[Any], Any], said: str
) -> None:
    with pytest.raises(TypeError) as caught:
        call(matrix())
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        *("all", "any", "argmax", "argmin", "cumsum", "log_softmax", "logsumexp"),
        *("max", "min", "prod", "squeeze", "std"),
    ],
)
def test_a_method_that_takes_no_dim_says_axis(name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name}\(\) has no option 'dim': use axis="):
        getattr(matrix(), name)(dim=0)


@pytest.mark.parametrize("name", ["empty", "full", "ones", "tensor"])
def test_a_function_that_makes_tensors_refuses_an_option_it_does_not_have(name: str) -> None:
    given = {"full": ((2,), 0.0)}.get(name, (2,))
    with pytest.raises(TypeError, match=rf"{name}\(\) has no option 'pin_memory'"):
        getattr(tg, name)(*given, pin_memory=True)


IN_ORDER: dict[str, Callable[[Any, Any], Any]] = {
    "sum": lambda m, x: m.sum(x, 0),
    "sum, kept": lambda m, x: m.sum(x, 0, True) * x.sum(1, True),
    "prod": lambda m, x: m.prod(x, 1),
    "prod, kept": lambda m, x: m.prod(x, 0, True) * x.prod(1, True),
    "mean, kept": lambda m, x: m.mean(x, 0, True) * x.mean(1, True),
    "logsumexp, kept": lambda m, x: m.logsumexp(x, 0, True) * x.logsumexp(1, True),
    "argmax and argmin, kept": lambda m, x: x * m.argmax(x, 0, True) - x * x.argmin(1, True),
    "all and any, kept": lambda m, x: x * m.all(x > 0, 0, True) - x * (x > 0).any(1, True),
    "mean": lambda m, x: m.mean(x, -1, keepdims=True),
    "softmax": lambda m, x: m.softmax(x, 0),
    "log_softmax": lambda m, x: m.log_softmax(x, 0),
    "logsumexp": lambda m, x: m.logsumexp(x, 0),
    "all and any": lambda m, x: x * m.all(x > 0, 0) - x * m.any(x > 0, 0),
    "count_nonzero": lambda m, x: x * m.count_nonzero(x, 1)[:, None],
    "argmax and argmin": lambda m, x: x * m.argmax(x, 0) - x * m.argmin(x, 0),
    "concat": lambda m, x: m.concat([x, x * x], 1),
    "stack": lambda m, x: m.stack([x, x * x], 1),
    "flip": lambda m, x: m.flip(x, (0,)),
    "roll": lambda m, x: m.roll(x, 1, 0),
    "argsort": lambda m, x: x * m.argsort(x, 0),
    "squeeze": lambda m, x: m.squeeze(x[None, :, None]) + m.squeeze(x[None], 0),
    "tensordot": lambda m, x: m.tensordot(x, x.T, 1),
    "tril and triu": lambda m, x: m.tril(x, 1) - m.triu(x, -1),
    "diag and diagonal": lambda m, x: m.diag(x[0], 1).sum() + m.diagonal(x, 1).sum(),
    "svd": lambda m, x: m.linalg.svd(x, False)[1],
    "qr": lambda m, x: m.linalg.qr(x, "reduced")[1] ** 2,
    "fft": lambda m, x: abs(m.fft.fft(x, 4, 0)),
}


@pytest.mark.parametrize("call", IN_ORDER.values(), ids=IN_ORDER.keys())
def test_a_function_takes_its_options_in_the_order_of_pytorch(
    call: Callable[[Any, Any], Any],
) -> None:
    ours, theirs = matrix(), torch.tensor(MATRIX, requires_grad=True)
    mine, wanted = call(tg, ours), call(torch, theirs)
    mine.sum().backward()
    wanted.sum().backward()
    np.testing.assert_allclose(mine.detach().numpy(), wanted.detach().numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.grad.numpy(), theirs.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_a_function_takes_its_options_in_the_order_of_numpy() -> None:
    x, array, places = matrix().detach(), np.array(MATRIX, np.float32), np.array([1, 0])
    pairs = [
        (tg.max(x, 0), np.max(array, 0)),
        (tg.min(x, 1), np.min(array, 1)),
        (tg.var(x, 0), np.var(array, 0)),
        (tg.std(x, 0), np.std(array, 0)),
        (tg.sort(x, 0), np.sort(array, 0)),
        (tg.trace(x, 1), np.trace(array, 1)),
        (tg.repeat(x, 2, 0), np.repeat(array, 2, 0)),
        (tg.take(x, places, 1), np.take(array, places, 1)),
        (tg.take_along_axis(x, places[:, None], 1), array[[0, 1], [1, 0]][:, None]),
        (tg.cumulative_sum(x, 0), np.cumsum(array, 0)),
        (tg.cumulative_prod(x, 0), np.cumprod(array, 0)),
        (tg.unstack(x, 1)[2], array[:, 2]),
    ]
    for mine, wanted in pairs:
        np.testing.assert_allclose(mine.numpy(), wanted, rtol=1e-6)


NO_AXES: list[tuple[Callable[[Any], Any], str]] = [
    (
        lambda x: tg.sum(x, True),
        "expected an integer as axis in sum, got bool",
    ),
    (lambda x: x.mean([0, 1]), "as axis in mean, got list; several axes are a tuple"),
    (lambda x: tg.softmax(x, 1.0), "as axis in softmax, got float"),
    (
        lambda x: tg.max(x, x),
        "as axis in max, got Tensor; of two tensors element by element, write ",
    ),
    (lambda x: x.min(tg.tensor(1)), "write telegrad.minimum"),
]


@pytest.mark.parametrize(("call", "said"), NO_AXES, ids=[said for _, said in NO_AXES])
def test_what_is_no_axis_is_named_as_such(call: Callable[[Any], Any], said: str) -> None:
    with pytest.raises(TypeError) as caught:
        call(matrix())
    assert said in str(caught.value)


SUPPORTED: dict[str, Callable[[Any], Any]] = {
    "view": lambda x: x.view(3, 2),
    "view of a tuple, with a length left open": lambda x: x.view((-1, 2)),
    "clamp": lambda x: x.clamp(-1.0, 2.0),
    "clamp from below": lambda x: x.clamp(min=0.0),
    "t": lambda x: x.t(),
    "t of a vector": lambda x: x[0].t(),
    "flatten": lambda x: x.flatten(),
    "flatten of a number": lambda x: x[0, 0].flatten(),
    "flatten from an axis": lambda x: x.unsqueeze(dim=2).flatten(1),
    "flatten up to an axis": lambda x: x.unsqueeze(2).flatten(start_dim=0, end_dim=-2),
    "transpose by name": lambda x: x.transpose(dim0=0, dim1=-1),
    "cpu and contiguous": lambda x: x.cpu().contiguous(),
    "dim and numel": lambda x: x * (10 * x.dim() + x.numel()),
}


@pytest.mark.parametrize("call", SUPPORTED.values(), ids=SUPPORTED.keys())
def test_what_is_supported_gives_the_value_and_gradient_of_pytorch(
    call: Callable[[Any], Any],
) -> None:
    ours, theirs = matrix(), torch.tensor(MATRIX, requires_grad=True)
    mine, wanted = call(ours), call(theirs)
    assert mine.shape == tuple(wanted.shape)
    (mine * mine).sum().backward()
    (wanted * wanted).sum().backward()
    np.testing.assert_allclose(mine.detach(), wanted.detach(), rtol=1e-6)
    np.testing.assert_allclose(ours.grad, theirs.grad, rtol=1e-6)


@pytest.mark.parametrize("axes", [(1, 0), (0, 2), (-3, 1)])
def test_flatten_names_axes_that_are_not_there(axes: tuple[int, int]) -> None:
    with pytest.raises(tg.errors.ShapeError, match=r"two axes of shape \(2, 3\) in flatten"):
        matrix().flatten(*axes)


def test_shapes_may_be_given_as_several_numbers() -> None:
    assert [f(2, 3).shape for f in (tg.zeros, tg.ones, tg.empty)] == [(2, 3)] * 3
    assert tg.zeros(()).shape == ()
    for wrong in ((2, tg.float64), ((2, 3), 4), (2.5,)):
        with pytest.raises(tg.errors.DTypeError, match="whole numbers as the lengths of a shape"):
            tg.zeros(*wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda **options: nn.Linear(2, 2, **options),
        lambda **options: nn.Embedding(2, 2, **options),
        lambda **options: nn.LayerNorm(2, **options),
        lambda **options: nn.BatchNorm2d(2, **options),
        lambda **options: nn.Conv2d(2, 2, 1, **options),
        lambda **options: nn.MultiheadAttention(2, 1, **options),
        lambda **options: nn.GRU(2, 2, **options),
        lambda **options: tg.tensor([1.0], **options),
    ],
)
def test_what_is_made_takes_the_device_on_which_it_is(make: Callable[..., Any]) -> None:
    made = make(device="cpu", dtype=tg.float64)
    assert isinstance(made, (nn.Module, tg.Tensor))
    values = [made] if isinstance(made, tg.Tensor) else list(made.parameters())
    assert {(value.device, value.dtype) for value in values} == {("cpu", np.dtype("float64"))}


@pytest.mark.parametrize("name", ["sum", "mean", "max", "argmin", "all", "logsumexp"])
@pytest.mark.parametrize("second", [1, np.float64, None])
def test_what_stands_in_the_place_of_keepdims_is_no_axis_and_no_dtype(
    name: str, second: Any
) -> None:
    x = matrix().detach()
    with pytest.raises(tg.errors.UsageError, match=f"True or False as keepdims in {name}"):
        getattr(x, name)(0, second)
    with pytest.raises(tg.errors.UsageError, match="several axes are a tuple"):
        getattr(tg, name)(x, 0, second)


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("linear", lambda x: torch.nn.Linear(3, 2)(x)),
        ("sin", lambda x: torch.sin(x)),
        ("add", lambda x: torch.add(torch.ones(2, 3), x)),
        ("stack", lambda x: torch.stack([torch.ones(2, 3), x])),
        ("mse_loss", lambda x: torch.nn.functional.mse_loss(torch.ones(2, 3), x)),
        ("copy_", lambda x: torch.ones(2, 3).copy_(x)),
    ],
)
def test_a_function_of_pytorch_says_how_to_convert_a_telegrad_tensor(
    name: str, use: Callable[[Any], object]
) -> None:
    """PyTorch's own words are that it must be Tensor, not Tensor."""
    with pytest.raises(tg.errors.DTypeError, match=f"PyTorch's {name}, got .*torch.to_torch$"):
        use(matrix())


def test_pytorch_still_makes_tensors_of_telegrads_values() -> None:
    for make in (torch.tensor, torch.as_tensor, torch.asarray, torch.from_dlpack):
        assert make(tg.tensor(MATRIX)).tolist() == MATRIX
