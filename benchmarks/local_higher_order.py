"""Forward mode and Hessian-vector products, by each way that the libraries have for them.

PyTorch has two of each: the functions of ``torch.func``, which the goals are about, and by hand,
with ``torch.autograd.forward_ad`` and with two backward passes. The second are faster there, so
both are shown, each beside the same way in telegrad. HIPS autograd has one way of each.
"""

import autograd.numpy as anp
import numpy as np
import torch
from torch.autograd import forward_ad as torch_forward

import autograd as hips
import telegrad as tg
from benchmarks.goals import Goal
from benchmarks.measuring import sample_in_turns
from benchmarks.networks import attend, attention_data, network, weights
from telegrad.autograd import forward_ad, functional

__all__ = ["of_attention", "of_the_mlp"]

_FASTER_THAN_HIPS = {"HIPS autograd / telegrad": 1.0}


def of_the_mlp(table, scale) -> None:
    """Of the small MLP, as functions of its first weight."""
    pairs, data = weights(8, 64, 32)
    ours = [tuple(tg.tensor(p) for p in pair) for pair in pairs]
    theirs = [tuple(torch.tensor(p) for p in pair) for pair in pairs]
    x, tx = tg.tensor(data), torch.tensor(data)

    def loss(params, x, tanh, mean):
        def of(first):
            h = network([(first, params[0][1]), *params[1:]], x, tanh)
            return mean(h * h)

        return of

    f, tf = loss(ours, x, tg.tanh, tg.mean), loss(theirs, tx, torch.tanh, torch.mean)
    hf = loss(pairs, data, anp.tanh, anp.mean)
    first = pairs[0][0]
    w, tw = ours[0][0], theirs[0][0]
    table.measure(
        "MLP 8 × 64: the function alone",
        {"telegrad": lambda: f(w), "PyTorch": lambda: tf(tw), "HIPS autograd": lambda: hf(first)},
        rounds=40 // scale,
    )
    _measure(table, "MLP 8 × 64", (f, tf, hf), first, 40 // scale, goal=1.5)
    # In turns: a ratio of what was measured at two times would tell of the machine as well.
    v = tg.tensor(np.ones(first.shape, np.float32))
    both = {"function": lambda: f(w), "jvp": lambda: functional.jvp(f, (w,), (v,))}
    samples = sample_in_turns(both, 40 // scale, 5)
    cost = min(samples["jvp"]) / min(samples["function"])
    table.goals.append(Goal("MLP 8 × 64: jvp / the function alone", 3.0, cost, at_most=True))


def of_attention(table, scale) -> None:
    """The same of the attention block, as functions of the first matrix."""
    data, mats = attention_data()
    ours, theirs = [tg.tensor(m) for m in mats], [torch.tensor(m) for m in mats]
    x, tx = tg.tensor(data), torch.tensor(data)

    def f(first):
        out = attend(x, first, *ours[1:], lambda z: tg.softmax(z, axis=-1), 0.125)
        return (out * out).mean()

    def tf(first):
        out = attend(tx, first, *theirs[1:], lambda z: torch.softmax(z, dim=-1), 0.125)
        return (out * out).mean()

    def hf(first):
        q, k, u = data @ first, data @ mats[1], data @ mats[2]
        z = q @ anp.swapaxes(k, -1, -2) * np.float32(0.125)
        e = anp.exp(z - anp.max(z, axis=-1, keepdims=True))
        out = (e / anp.sum(e, axis=-1, keepdims=True)) @ u
        return anp.mean(out * out)

    _measure(table, "attention block", (f, tf, hf), mats[0], 30 // scale)


def _measure(table, name, functions, start, rounds, goal=None):
    """Rows for a function of one matrix."""
    f, tf, hf = functions
    direction = np.ones(start.shape, np.float32)
    w, tw = tg.tensor(start), torch.tensor(start)
    v, tv = tg.tensor(direction), torch.tensor(direction)
    hip_jvp = hips.differential_operators.make_jvp(hf)
    hip_hvp = hips.hessian_vector_product(hf)
    table.measure(
        f"{name}: jvp (torch.func)",
        {
            "telegrad": lambda: functional.jvp(f, (w,), (v,)),
            "PyTorch": lambda: torch.func.jvp(tf, (tw,), (tv,)),
            "HIPS autograd": lambda: hip_jvp(start)(direction),
        },
        rounds=rounds,
        goal=_FASTER_THAN_HIPS,
    )
    table.measure(
        f"{name}: jvp by hand (forward_ad)",
        {
            "telegrad": lambda: _by_dual_level(forward_ad, f, w, v),
            "PyTorch": lambda: _by_dual_level(torch_forward, tf, tw, tv),
        },
        rounds=rounds,
    )
    table.measure(
        f"{name}: Hessian-vector product (torch.func: forward over reverse)",
        {
            "telegrad": lambda: functional.hvp(f, (w,), (v,)),
            "PyTorch": lambda: torch.func.jvp(torch.func.grad(tf), (tw,), (tv,)),
            "HIPS autograd": lambda: hip_hvp(start, direction),
        },
        rounds=rounds,
        goal={**({"PyTorch / telegrad": goal} if goal else {}), **_FASTER_THAN_HIPS},
    )
    table.measure(
        f"{name}: Hessian-vector product by hand (reverse over reverse)",
        {
            "telegrad": lambda: _by_two_passes(tg.autograd.grad, f, w, v),
            "PyTorch": lambda: _by_two_passes(torch.autograd.grad, tf, tw, tv),
            "HIPS autograd": lambda: hip_hvp(start, direction),
        },
        rounds=rounds,
    )


def _by_dual_level(forward, function, at, direction):
    with forward.dual_level():
        return forward.unpack_dual(function(forward.make_dual(at, direction)))


def _by_two_passes(grad, function, at, direction):
    leaf = at.detach().requires_grad_()
    (slope,) = grad(function(leaf), leaf, create_graph=True)
    return grad(slope, leaf, direction)
