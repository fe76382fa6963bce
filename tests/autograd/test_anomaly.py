"""``detect_anomaly``: the line that recorded the failing operation; NaN found where it arises."""

import numpy as np
import pytest

import telegrad as tg
from telegrad.autograd import Function, detect_anomaly, set_detect_anomaly
from telegrad.errors import AnomalyError

pytestmark = pytest.mark.filterwarnings("ignore:invalid value", "ignore:divide by zero")


def notes_of(info):
    return "\n".join(getattr(info.value, "__notes__", []))


def test_nan_in_the_backward_pass_names_the_operation_and_its_line():
    with detect_anomaly():
        x = tg.tensor(0.0, requires_grad=True)
        y = tg.sqrt(x) * 0.0  # the line that is to be found
        with pytest.raises(AnomalyError, match="SqrtBackward gave NaN as gradient 0 of 1") as info:
            y.backward()
    assert "y = tg.sqrt(x) * 0.0  # the line that is to be found" in notes_of(info)
    assert x.grad is None


def test_without_it_nan_passes():
    x = tg.tensor(0.0, requires_grad=True)
    (tg.sqrt(x) * 0.0).backward()
    assert np.isnan(x.grad.item())


def test_check_nan_can_be_left_out():
    with detect_anomaly(check_nan=False):
        x = tg.tensor(0.0, requires_grad=True)
        (tg.sqrt(x) * 0.0).backward()
    assert np.isnan(x.grad.item())


def test_a_failing_function_shows_where_it_was_called():
    class Fails(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

        @staticmethod
        def backward(ctx, gradient):
            raise KeyError("broken")

    x = tg.tensor(1.0, requires_grad=True)
    with detect_anomaly():
        y = Fails.apply(x)
    with pytest.raises(KeyError) as info:
        y.backward()
    assert "FailsBackward, recorded at" in notes_of(info)
    assert "y = Fails.apply(x)" in notes_of(info)


def test_a_failing_function_names_itself_without_it():
    class Fails(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

        @staticmethod
        def backward(ctx, gradient):
            raise KeyError("broken")

    with pytest.raises(KeyError) as info:
        Fails.apply(tg.tensor(1.0, requires_grad=True)).backward()
    assert "while the backward pass ran FailsBackward" in notes_of(info)


def test_nan_in_one_of_several_results():
    x = tg.asarray(np.eye(2)).requires_grad_()
    with detect_anomaly():
        values, vectors = tg.linalg.eigh(x)
        with pytest.raises(AnomalyError, match="gave NaN"):
            (values.sum() + tg.sqrt(vectors[0, 1] * 0.0) * 0.0).backward()


def test_set_detect_anomaly_works_at_once_and_as_a_context_manager():
    set_detect_anomaly(True)
    try:
        x = tg.tensor(1.0, requires_grad=True)
        assert "traceback" in (x * 2.0).grad_fn.metadata
    finally:
        set_detect_anomaly(False)
    assert (x * 2.0).grad_fn.metadata is None
    with set_detect_anomaly(True):
        assert (x * 2.0).grad_fn.metadata is not None
    assert (x * 2.0).grad_fn.metadata is None


def test_it_decorates_a_function():
    @detect_anomaly()
    def record():
        return (tg.tensor(1.0, requires_grad=True) * 2.0).grad_fn.metadata

    assert record() is not None
