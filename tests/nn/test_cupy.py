"""Models on a CUDA device: moved, trained, saved and loaded, as on the CPU."""

import copy
import pickle

import numpy as np
import pytest
from tests.devices import CUDA, cupy, on_a_gpu

import telegrad as tg
from telegrad import nn, optim
from telegrad.errors import DeviceError

pytestmark = on_a_gpu

OPTIMISERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "plain SGD": lambda p: optim.SGD(p, lr=0.1, maximize=True),
    "Adam": lambda p: optim.Adam(p, lr=0.01, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, lr=0.01),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.1),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
}


class Network(nn.Module):
    """A bit of everything, for images of 8 × 8 and a word each."""

    def __init__(self, device=None):
        super().__init__()
        self.layers = nn.Sequential(
            # Batches that are brought to mean 0 leave a bias no gradient but noise.
            nn.Conv2d(1, 4, 3, padding=1, bias=False, device=device),
            nn.BatchNorm2d(4, device=device),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.25, generator=tg.Generator(3)),
        )
        self.words = nn.Embedding(5, 64, padding_idx=0, device=device)
        self.norm = nn.LayerNorm(64, device=device)
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True, device=device)
        self.gru = nn.GRU(64, 8, batch_first=True, device=device)
        self.out = nn.Linear(8, 3, device=device)

    def forward(self, images, words):
        seen = self.layers(images).reshape(images.shape[0], 1, -1) + self.words(words)[:, None]
        seen = self.norm(seen)
        seen, _ = self.attention(seen, seen, seen, need_weights=False)
        return self.out(self.gru(seen)[1][0])


def made(device=None):
    tg.manual_seed(0)
    return Network(device).double()


def data(device="cpu"):
    generator = tg.Generator(1)
    images = tg.randn(6, 1, 8, 8, generator=generator, dtype=tg.float64, device=device)
    words = tg.randint(0, 5, (6,), generator=generator, device=device)
    classes = tg.randint(0, 3, (6,), generator=generator, device=device)
    return images, words, classes


def losses(model, optimiser, steps, device):
    images, words, classes = data(device)
    found = []
    for _ in range(steps):
        model.layers[4].generator.manual_seed(3)
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(images, words), classes, label_smoothing=0.1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        found.append(loss.item())
    return found


def is_on_the_device(values):
    return all(isinstance(each.array, cupy.ndarray) and each.device == CUDA for each in values)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_training_on_the_device_is_that_on_the_cpu(name):
    here, there = made(), made().to("cuda")
    assert is_on_the_device([*there.parameters(), *there.buffers()])
    optimisers = [OPTIMISERS[name](each.parameters()) for each in (here, there)]
    expected = losses(here, optimisers[0], 4, "cpu")
    assert losses(there, optimisers[1], 4, CUDA) == pytest.approx(expected, rel=1e-9)
    assert is_on_the_device([*there.parameters(), *there.buffers()])
    assert is_on_the_device([p.grad for p in there.parameters()])
    for one, other in zip(here.state_dict().values(), there.state_dict().values()):
        np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=1e-8, atol=1e-10)


def test_a_model_and_its_optimiser_go_to_the_device_and_back_in_the_midst():
    here, there = made(), made()
    first, second = (optim.Adam(each.parameters(), lr=0.01) for each in (here, there))
    expected = losses(here, first, 6, "cpu")
    found = losses(there, second, 1, "cpu")
    found += losses(there.cuda(), second, 1, CUDA)
    found += losses(there.cpu(), second, 1, "cpu")
    found += losses(there.cuda(0), second, 3, CUDA)
    assert found == pytest.approx(expected, rel=1e-9)


def test_layers_are_made_on_the_device_with_the_numbers_of_the_seed():
    for here, there in zip(made().state_dict().values(), made("cuda").state_dict().values()):
        assert there.device == CUDA
        assert there.numpy().tolist() == here.numpy().tolist()


def test_states_are_saved_and_loaded_between_devices(tmp_path):
    model = made("cuda")
    optimiser = optim.Adam(model.parameters())
    losses(model, optimiser, 2, CUDA)
    tg.save(model.state_dict(), tmp_path / "model.safetensors")
    state = optimiser.state_dict()
    loaded = []
    for device in ("cpu", CUDA):
        other = made(device)
        other.load_state_dict(tg.load(tmp_path / "model.safetensors"))
        assert all(p.device == device for p in other.parameters())
        again = optim.Adam(other.parameters())
        again.load_state_dict(state)
        loaded.append(losses(other, again, 2, device))
    assert loaded == [pytest.approx(losses(model, optimiser, 2, CUDA), rel=1e-9)] * 2
    assert is_on_the_device(tg.load(tmp_path / "model.safetensors", "cuda").values())


def test_a_state_of_the_device_stays_as_it_was_when_steps_go_on():
    model = made("cuda")
    optimiser = optim.SGD(model.parameters(), lr=0.1)
    before = model.state_dict()
    kept = {name: value.numpy().tolist() for name, value in before.items()}
    losses(model, optimiser, 1, CUDA)
    assert {name: value.numpy().tolist() for name, value in before.items()} == kept
    # Nor does a step disturb what was recorded before it.
    w = model.out.weight
    y = (w * w).sum()
    optimiser.step()
    (gradient,) = tg.autograd.grad(y, [w])
    assert not np.array_equal(gradient.numpy(), (2 * w.detach()).numpy())


def test_copies_and_pickles_of_a_model_stay_on_the_device():
    model = made("cuda")
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert is_on_the_device(other.state_dict().values())
        assert other.out.weight.tolist() == model.out.weight.tolist()


def test_a_dtype_and_a_device_at_once_leave_counters_whole():
    model = Network().to("cuda", tg.float64)
    assert is_on_the_device(model.state_dict().values())
    assert model.layers[1].num_batches_tracked.dtype == tg.int64
    assert model.out.weight.dtype == tg.float64


def test_a_model_without_its_input_on_the_device_says_what_to_do():
    model = nn.Linear(2, 1, device="cuda")
    with pytest.raises(DeviceError, match=r"one backend, got .*; move one .*\.to\(device\)"):
        model(tg.ones(3, 2).requires_grad_())
