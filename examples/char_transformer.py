"""A transformer that writes sonnets letter by letter, in one process and over two workers.

It learns to tell the next character of Shakespeare's sonnets. The same model is trained twice:
here, and with its first half on one worker and its second on another. Both runs must have the same
losses. On the last 14 sonnets, which it has not seen, it must do better than counting does: than
the best guess from the two characters before, learned from the same 140 sonnets. (It takes some
hundred steps to get there: at first it only knows what is frequent, then what follows what.)
``--quick`` takes a few steps and checks the losses alone.
"""

import math
import os
from collections import Counter
from pathlib import Path
from typing import Any

# The workers share the machine's cores, so each keeps to one; before NumPy reads it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from showing import arguments, progress, save_picture

import telegrad as tg
from telegrad import nn, optim
from telegrad.distributed import LocalCluster
from telegrad.distributed import autograd as distributed_autograd
from telegrad.distributed.optim import DistributedOptimizer
from telegrad.distributed.remote_module import RemoteModule
from telegrad.optim.lr_scheduler import CosineAnnealingLR

WIDTH, HEADS, LENGTH, BATCH, RATE, STEPS = 64, 4, 32, 16, 1e-2, 900
HELD_OUT = 14


class Layer(nn.Module):
    """Attention to what came before, then two linear maps; each after a normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.widen = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        h = self.norm1(x)
        x = x + self.attention(h, h, h, need_weights=False, is_causal=True)[0]
        return x + self.narrow(nn.functional.gelu(self.widen(self.norm2(x))))


class FirstHalf(nn.Module):
    """Characters to features."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(characters, WIDTH)
        self.places = nn.Parameter(tg.randn(LENGTH, WIDTH) * 0.1)
        self.layer = Layer()

    def forward(self, text: Any) -> Any:
        return self.layer(self.letters(text) + self.places[: text.shape[1]])


class SecondHalf(nn.Module):
    """Features to how likely each character comes next."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.layer = Layer()
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, characters)

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(self.layer(x)))


def halves(characters: int) -> tuple[nn.Module, nn.Module]:
    """Both halves, the same on every call."""
    tg.manual_seed(0)
    return FirstHalf(characters), SecondHalf(characters)


def batches(text: Any, steps: int) -> list[tuple[Any, Any]]:
    """Stretches of text and, for each, the same one character further on."""
    generator = tg.Generator(5)
    found = []
    for _ in range(steps):
        starts = tg.randint(0, len(text) - LENGTH, (BATCH,), generator=generator).numpy()
        taken = text[starts[:, None] + np.arange(LENGTH + 1)]
        found.append((tg.tensor(taken[:, :-1]), tg.tensor(taken[:, 1:])))
    return found


def loss_of(scores: Any, following: Any) -> Any:
    return nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), following.reshape(-1))


def train_here(characters: int, steps: list[tuple[Any, Any]]) -> tuple[nn.Module, list[float]]:
    model = nn.Sequential(*halves(characters))
    optimizer = optim.AdamW(model.parameters(), lr=RATE)
    schedule = CosineAnnealingLR(optimizer, STEPS)
    losses = []
    with progress("one process", len(steps)) as advance:
        for text, following in steps:
            optimizer.zero_grad()
            loss = loss_of(model(text), following)
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            advance(losses[-1])
    return model, losses


def train_split(characters: int, steps: list[tuple[Any, Any]]) -> list[float]:
    losses = []
    with LocalCluster(["first", "second"]), progress("two workers", len(steps)) as advance:
        first = RemoteModule("first", FirstHalf, (characters,))
        second = RemoteModule("second", SecondHalf, (characters,))
        for remote, local in zip((first, second), halves(characters)):
            remote.load_state_dict(local.state_dict())
        parameters = [*first.parameters(), *second.parameters()]
        optimizer = DistributedOptimizer(optim.AdamW, parameters, lr=RATE)
        schedule = optimizer.schedule(CosineAnnealingLR, STEPS)
        for text, following in steps:
            with distributed_autograd.context() as context:
                loss = loss_of(second(first(text)), following)
                distributed_autograd.backward(context, [loss])
                optimizer.step(context)
            schedule.step()
            losses.append(loss.item())
            advance(losses[-1])
    return losses


def loss_unseen(model: nn.Module, text: Any) -> float:
    """Nats a character, over stretches side by side: each begins knowing nothing."""
    count = (len(text) - 1) // LENGTH
    given, following = (text[i : i + count * LENGTH].reshape(count, LENGTH) for i in (0, 1))
    model.eval()
    with tg.no_grad():
        return float(loss_of(model(tg.tensor(given)), tg.tensor(following)).item())


def loss_by_counting(seen: str, unseen: str, before: int, letters: str) -> float:
    """Nats a character, when each is guessed by what followed the `before` characters before it.

    What was seen rarely is mixed with the guess from one character less: as if that had been seen
    five times.
    """
    lengths = range(1, before + 2)
    counts = Counter(seen[i : i + n] for n in lengths for i in range(len(seen) - n + 1))
    begun = Counter(seen[i : i + n - 1] for n in lengths for i in range(len(seen) - n + 1))
    total = 0.0
    for i in range(before, len(unseen)):
        chance = 1 / len(letters)
        for n in lengths:
            known = unseen[i - n + 1 : i]
            chance = (counts[known + unseen[i]] + 5 * chance) / (begun[known] + 5)
        total -= math.log(chance)
    return total / (len(unseen) - before)


def write(model: nn.Module, letters: str, start: str, count: int) -> str:
    """Goes on from `start`, drawing each character by its probability."""
    numbers = tg.Generator(3).numpy
    text = [letters.index(letter) for letter in start]
    model.eval()
    with tg.no_grad():
        for _ in range(count):
            scores = model(tg.tensor([text[-LENGTH:]]))[0, -1]
            chances = nn.functional.softmax(scores * 1.5, 0).numpy().astype(np.float64)
            text.append(int(numbers.choice(len(letters), p=chances / chances.sum())))
    return "".join(letters[i] for i in text)


def main() -> None:
    options = arguments(__doc__ or "")
    content = (Path(__file__).parent / "data" / "sonnets.txt").read_text()
    letters = "".join(sorted(set(content)))
    sonnets = content.split("\n\n")
    seen, unseen = "\n\n".join(sonnets[:-HELD_OUT]), "\n\n".join(sonnets[-HELD_OUT:])
    text, other = (np.array([letters.index(c) for c in part]) for part in (seen, unseen))
    steps = batches(text, 5 if options.quick else STEPS)
    model, here = train_here(len(letters), steps)
    split = train_split(len(letters), steps)
    difference = max(abs(a - b) for a, b in zip(here, split))
    print(f"largest difference of the losses of {len(steps)} steps: {difference:.3g}")
    assert difference < 1e-4, "the split model must train as the whole one"
    save_picture(
        Path(options.out) / "char_transformer.svg",
        "Sonnets, letter by letter",
        {"one process": here, "two workers": split},
    )
    if not options.quick:
        bounds = [loss_by_counting(seen, unseen, before, letters) for before in (0, 1, 2)]
        last = loss_unseen(model, other)
        print(write(model, letters, "Shall I ", 160))
        print("nats a character in sonnets that were not seen:")
        print("  guessing from 0, 1, 2 characters before:", *(f"{b:.3f}" for b in bounds))
        print(f"  the transformer: {last:.3f}")
        assert last < bounds[-1], "expected a transformer that does better than counting"


if __name__ == "__main__":
    main()
