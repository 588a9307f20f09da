"""torchvision and transformers, where they are installed."""

import importlib.util

import pytest

from glasshouse.bench.torch_cases import import_torchvision


@pytest.fixture(scope="session")
def torchvision():
    pytest.importorskip("torch")
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    return import_torchvision()
