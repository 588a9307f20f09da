"""Of tests of single parts."""

import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.programs import program


@pytest.fixture
def alone(monkeypatch):
    """No other Programs, and none that others find; each is compiled at once."""
    with gh.backends.use("lazy") as backend, flags.override(compile="always"):
        backend.evaluate()
        monkeypatch.setattr(program, "programs", {})
        yield


@pytest.fixture
def without_winograd(alone):
    """The same, and convolutions go to oneDNN."""
    with flags.override(winograd=False):
        yield


@pytest.fixture
def without_bf16x6(alone):
    """The same as `alone`, and products go to oneDNN."""
    with flags.override(bf16x6=False):
        yield
