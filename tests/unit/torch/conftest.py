"""PyTorch is optional; TorchDynamo starts each test afresh."""

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def fresh_dynamo(tmp_path, monkeypatch):
    """Nothing that an earlier test compiled, in this process or on the disk."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
