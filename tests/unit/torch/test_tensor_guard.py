"""Guards in C say of tensors and modes what their slow twins in Python say."""

import ctypes
import sys

import pytest

torch = pytest.importorskip("torch")

from glasshouse.torch.front.state import TensorCheck, modes_check  # noqa: E402
from glasshouse.torch.scopes import mode_readers  # noqa: E402
from glasshouse.torch.scopes.passes import count_other_modes  # noqa: E402
from glasshouse.torch.tensors import guard as tensor_guard  # noqa: E402


@pytest.fixture
def native():
    module = tensor_guard.native()
    if module is None:
        pytest.skip("tensors have other parts here, or there is no compiler")
    return module


def test_parts_are_where_they_are_looked_for(native):
    assert native.TensorGuard and tensor_guard.find_gradient_parts() is not None


def test_tensors(native):
    tensors = tensor_guard.samples()
    for one in tensors:
        check = TensorCheck(one)
        for other in tensors:
            assert native.holds(check.native, other) == check(other) == (one is other)
        assert not native.holds(check.native, "text")


@pytest.mark.parametrize(
    "change",
    [
        lambda: torch.no_grad(),
        lambda: torch.inference_mode(),
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
        lambda: torch.overrides.TorchFunctionMode(),
        lambda: torch.utils._python_dispatch.TorchDispatchMode(),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_modes(native, change):
    check = modes_check()
    assert check(None) and native.holds(check.native, None)
    with change():
        assert not check(None) and not native.holds(check.native, None)
    assert check(None) and native.holds(check.native, None)


def test_it_is_not_in_the_way_of_views_and_gradients(native):
    x = torch.ones(3, requires_grad=True)
    check = TensorCheck(x)
    x.sum().backward()
    assert native.holds(check.native, x)
    x.requires_grad_(False)
    assert not native.holds(check.native, x)


def test_hooks_only_where_they_are_forbidden(native):
    x = torch.ones(3, requires_grad=True)
    check = TensorCheck(x)
    for register in (x.register_hook, x.register_post_accumulate_grad_hook):
        with register(lambda g: None):
            assert check(x) and native.holds(check.native, x)
    check.forbid_hooks()
    assert check(x) and native.holds(check.native, x)
    for register in (x.register_hook, x.register_post_accumulate_grad_hook):
        with register(lambda g: None):
            assert not check(x) and not native.holds(check.native, x)
    assert check(x) and native.holds(check.native, x)


def test_saved_tensors_hooks_are_a_mode(native):
    check = modes_check()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        assert not check(None) and not native.holds(check.native, None)
    assert check(None) and native.holds(check.native, None)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="libraries have other names")
def test_c_functions_tell_modes():
    result = mode_readers.found_readers()
    assert result.keys() == mode_readers.READERS.keys()
    for key, reader in mode_readers.READERS.items():
        ask = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(result[key][0])
        bits = [ask(reader.argument) & reader.mask]
        with reader.changed():
            bits.append(ask(reader.argument) & reader.mask)
        assert bits[0] != bits[1], reader.symbol


def test_a_c_function_that_tells_something_else_is_not_asked():
    grad = mode_readers.READERS[torch.is_grad_enabled, None]
    other = grad._replace(changed=mode_readers.other_autocast)
    address = mode_readers.address_of(grad)
    assert address is None or not mode_readers.follows(address, other)
    assert mode_readers.address_of(grad._replace(symbol="none")) is None


def test_inside_a_mode_python_counts_modes():
    with torch.utils._python_dispatch.TorchDispatchMode():
        assert mode_readers.reader_of(count_other_modes, None) is None
