"""PyTorch is optional; TorchDynamo starts each test afresh."""

import pytest

torch = pytest.importorskip("torch")

from glasshouse.torch.scopes.state_modes import autocast_nesting  # noqa: E402

LIBRARIES_WARN = ("ignore::DeprecationWarning", "ignore::FutureWarning")


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "library_warnings: PyTorch and others' models warn of theirs"
    )


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("library_warnings") is not None:
            for line in LIBRARIES_WARN:
                item.add_marker(pytest.mark.filterwarnings(line), append=False)


@pytest.fixture(autouse=True)
def fresh_dynamo(tmp_path, monkeypatch):
    """Nothing that an earlier test compiled, in this process or on the disk; no mode is left on."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
    assert torch.is_grad_enabled(), "the test left gradients off"
    assert not autocast_nesting(), "the test left a region of autocast open"
