"""transformers, with which the models are compared."""

import sys

import pytest


@pytest.fixture(scope="session")
def transformers():
    """The package, if it is there; neighbours whose compiled parts may not load are hidden."""
    pytest.importorskip("torch")
    hidden = [n for n in ("torchvision", "torchaudio") if sys.modules.setdefault(n, None) is None]
    try:
        package = pytest.importorskip("transformers")
        package.utils.is_torchvision_available()  # each is asked once
        package.utils.import_utils.is_torchaudio_available()
    finally:
        for name in hidden:
            del sys.modules[name]
    return package
