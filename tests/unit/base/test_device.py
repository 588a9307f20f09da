"""Names of devices, and what PyTorch's programs ask about them."""

import pytest

import glasshouse as gh
from glasshouse import cuda


@pytest.mark.parametrize(
    "arguments, kind, index",
    [(("cpu",), "cpu", None), (("cuda:1",), "cuda", 1), (("cuda", 0), "cuda", 0)],
)
def test_a_name_has_its_type_and_index(arguments, kind, index):
    device = gh.device(*arguments)
    assert (device.type, device.index) == (kind, index)
    assert device == str(device) and device in {str(device)}


def test_models_and_batches_go_to_the_device_that_there_is():
    device = gh.device("cuda" if cuda.is_available() else "cpu")
    model = gh.nn.Linear(2, 2).to(device, non_blocking=True)
    x = gh.ones(2, device=device).to(device, non_blocking=True)
    assert model(x).device == device and x.device.type == "cpu" and cuda.device_count() == 0


def test_a_copy_is_another_handle():
    x = gh.ones(2)
    assert x.to("cpu") is x and x.to(gh.float32, copy=True) is not x
    assert x.to("float64", True).dtype == gh.float64


def test_captured_code_may_ask_for_a_device():
    def moved(x, device):
        return x.to(device) + (1.0 if x.device.type == "cpu" else 2.0)

    captured = gh.optimize(moved, nopython=True)
    for _ in range(3):
        assert captured(gh.ones(2), gh.device("cpu")).tolist() == [2.0, 2.0]
    assert captured.hits == 2
