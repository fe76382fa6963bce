"""What goes into a function of JAX and what comes out: dtypes, constants, static arguments."""

import jax
import numpy as np
import pytest
import torch
from jax import numpy as jnp
from tests.interop.jax import simulators

import telegrad as tg
from telegrad.autograd import grad
from telegrad.errors import DTypeError, GradientError, ShapeError, UsageError
from telegrad.jax import from_jax

array_api_strict = pytest.importorskip("array_api_strict")


def test_integer_arguments_and_results_are_constants():
    @from_jax
    def pick(x, rows):
        return x[rows], rows + 1, jnp.argmax(x)

    x = tg.tensor(np.arange(4.0), requires_grad=True)
    chosen, after, best = pick(x, tg.tensor([2, 2, 0]))
    assert after.tolist() == [3, 3, 1]
    assert best.item() == 3
    assert not after.requires_grad
    chosen.sum().backward()
    assert x.grad.tolist() == [1, 0, 2, 0]


def test_none_leaves_go_in_and_come_out():
    @from_jax
    def f(x, options):
        assert options["scale"] is None
        return {"y": x * 2, "nothing": None}

    x = tg.tensor([1.0], requires_grad=True)
    out = f(x, {"scale": None})
    assert out["nothing"] is None
    out["y"].backward()
    assert x.grad.tolist() == [2.0]


def test_arrays_and_numbers_are_constants():
    f = from_jax(lambda x, a, b, c: x * a + b * c)
    x = tg.tensor([1.0, 2.0], dtype=tg.float64, requires_grad=True)
    y = f(x, np.array([2.0, 3.0]), jnp.array(4.0), c=2)
    assert y.tolist() == [10.0, 14.0]
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 3.0]
    assert isinstance(f(np.ones(1), 1, 2, 3), tg.Tensor)


def test_a_random_key_goes_in_and_comes_out():
    key = jax.random.key(7)
    x = tg.tensor(np.ones(3), requires_grad=True)
    y, after = simulators.noisy(x, key)
    y.sum().backward()
    expected, theirs = simulators.noisy.__wrapped__(np.ones(3), key)
    assert np.array_equal(x.grad.numpy(), expected)
    assert jnp.array_equal(jax.random.key_data(after), jax.random.key_data(theirs))
    old_style = tg.asarray(np.asarray(jax.random.key_data(key)))
    again, _ = simulators.noisy(x, old_style)
    assert np.array_equal(again.detach().numpy(), expected)


def test_static_arguments_steer_by_place_and_by_name():
    x = tg.tensor(np.array([1.0, 2.0]), requires_grad=True)
    assert simulators.steered(x, 3).item() == 9.0
    assert simulators.steered(x, power=2, kind="mean").item() == 2.5
    by_number = from_jax(lambda n, x: x * 0 + len(n), static_argnums=0)
    assert by_number("abc", x).tolist() == [3.0, 3.0]
    last = from_jax(lambda x, n: x**n if isinstance(n, int) else x, static_argnums=-1)
    assert last(x, 2).tolist() == [1.0, 4.0]
    assert last(x, 2.0).tolist() == [1.0, 2.0]


@pytest.mark.parametrize("value", [[1, 2], np.ones(2), tg.ones(2), torch.ones(2)])
def test_a_static_argument_that_cannot_be_one_is_refused(value):
    with pytest.raises(DTypeError, match="hashable value as the static argument 1 of steered"):
        simulators.steered(tg.ones(2), value)


def test_static_names_that_the_function_lacks_are_refused():
    with pytest.raises(UsageError, match="expected static_argnames among x, the arguments of f"):

        @from_jax(static_argnames="y")
        def f(x):
            return x

    with pytest.raises(UsageError, match="expected numbers of arguments as static_argnums"):
        from_jax(lambda x: x, static_argnums=["x"])
    with pytest.raises(UsageError, match="expected names of arguments as static_argnames"):
        from_jax(lambda x: x, static_argnames=[0])


def test_without_x64_double_precision_is_refused_and_single_is_not():
    jax.config.update("jax_enable_x64", False)
    f = from_jax(lambda x: jnp.sin(x))
    for array in (np.ones(2), np.ones(2, np.complex128)):
        with pytest.raises(DTypeError, match=r"jax.config.update\('jax_enable_x64', True\)"):
            f(tg.tensor(array))
        with pytest.raises(DTypeError, match=f"numbers of {array.dtype} silently"):
            f(array)
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = f(x)
    assert y.dtype == tg.float32
    y.sum().backward()
    assert x.grad.dtype == tg.float32


def test_without_x64_integers_go_if_they_fit():
    jax.config.update("jax_enable_x64", False)
    f = from_jax(lambda i: i + 1)
    assert f(tg.tensor([1, -2])).tolist() == [2, -1]
    with pytest.raises(DTypeError, match="of int64 silently"):
        f(tg.tensor([1 << 40]))


def test_a_graph_of_double_precision_refuses_a_pass_after_x64_was_turned_off():
    x = tg.tensor(np.ones(2), requires_grad=True)
    y = from_jax(lambda x: jnp.sin(x))(x).sum()
    jax.config.update("jax_enable_x64", False)
    with pytest.raises(DTypeError, match="of float64 silently"):
        y.backward()


def test_arrays_of_another_library_go_both_ways_by_dlpack():
    x = tg.asarray(array_api_strict.asarray([0.1, 0.2, 0.3])).requires_grad_()
    y = from_jax(lambda x: jnp.sin(x))(x)
    assert type(y.array) is type(x.array)
    y.sum().backward()
    assert np.allclose(np.from_dlpack(x.grad.array), np.cos([0.1, 0.2, 0.3]))
    (g,) = tg.autograd.grad(from_jax(lambda x: (x**3).sum())(x), x, create_graph=True)
    (h,) = tg.autograd.grad(g.sum(), x)
    assert np.allclose(np.from_dlpack(h.array), 6 * np.array([0.1, 0.2, 0.3]))


def test_results_share_the_memory_of_jax_and_are_never_written_to():
    y = from_jax(lambda x: x * 2)(tg.tensor(np.ones(3)))
    assert not y.array.flags.writeable
    kept = y.detach()
    y += 1.0
    y.copy_(tg.tensor(np.zeros(3)))
    assert y.tolist() == [0, 0, 0]
    assert kept.tolist() == [2, 2, 2]


def test_torch_tensors_go_in_and_come_out_at_second_order():
    x = torch.tensor([0.3, 0.7], dtype=torch.float64, requires_grad=True)
    out = from_jax(lambda tree: {"y": jnp.sin(tree["x"]) * tree["n"]})(
        {"x": x, "n": torch.tensor([1, 2])}
    )
    assert isinstance(out["y"], torch.Tensor)
    (g,) = torch.autograd.grad(out["y"].sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    assert torch.allclose(g, torch.cos(x) * torch.tensor([1, 2]))
    assert torch.allclose(h, -torch.sin(x) * torch.tensor([1, 2]))


def test_a_leaf_that_is_no_array_is_named_by_its_place():
    f = from_jax(lambda x, how=None: x)
    with pytest.raises(DTypeError, match=r"got str at args\[0\]\['a'\]\[1\]; .* static_argnames"):
        f({"a": [tg.ones(1), "text"]})
    with pytest.raises(DTypeError, match=r"got object at kwargs\['how'\]"):
        f(tg.ones(1), how=object())


def test_a_result_that_is_no_array_is_named_by_its_place():
    with pytest.raises(DTypeError, match=r"as the results of words, .* got str at result\['b'\]"):

        @from_jax
        def words(x):
            return {"a": x, "b": "text"}

        words(tg.ones(2))


def test_a_result_of_a_dtype_that_numpy_lacks_is_refused():
    with pytest.raises(DTypeError, match=r"got bfloat16; convert them inside"):
        from_jax(lambda x: x.astype(jnp.bfloat16))(tg.ones(2))


def test_a_function_that_is_not_pure_in_jaxs_eyes_is_refused():
    @from_jax
    def branching(x):
        return x if x.sum() > 0 else -x

    @from_jax
    def leaving(x):
        return np.sin(np.asarray(x))

    kept = []

    @from_jax
    def leaking(x):
        kept.append(x)
        return x + kept[0]

    for f in (branching, leaving):
        with pytest.raises(UsageError, match=f"pure function that JAX can trace, but {f.__name__}"):
            f(tg.ones(2))
    leaking(tg.ones(2))
    with pytest.raises(UsageError, match="keep nothing from one call to the next"):
        leaking(tg.ones(2).requires_grad_())


def test_shapes_that_change_between_a_call_and_its_adjoint_are_told():
    times = [1]
    repeat = from_jax(lambda x: jnp.tile(x**2, times[0]))
    x = tg.tensor(np.ones(2), requires_grad=True)
    y = repeat(x)
    times[0] = 2
    with pytest.raises(
        ShapeError, match=r"shapes \[\(2,\)\] from <lambda>, .*got \[\(4,\)\] .*static_argnames"
    ):
        grad([y.sum()], [x], create_graph=True)
    # What JAX kept of the call itself is not asked again.
    (found,) = grad([y.sum()], [x])
    assert found.tolist() == [2.0, 2.0]


def test_a_tensor_with_history_that_the_function_closes_over_is_refused():
    w = tg.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises((GradientError, TypeError)):
        from_jax(lambda x: x * jnp.asarray(w))(tg.ones(2))


def test_a_call_inside_of_a_transform_of_jax_is_refused_and_says_what_to_do():
    with pytest.raises(UsageError, match=r"got a tracer of JAX at args\[0\]; .*mix.__wrapped__"):
        jax.jit(lambda x: simulators.mix(x, x))(np.ones((2, 2)))


def test_what_is_no_function_is_refused():
    with pytest.raises(UsageError, match="expected a function of JAX for from_jax, got int"):
        from_jax(3)
