"""Tests of capture: errors inside it surface, and nothing captured is left over."""

import sys
from pathlib import Path

import pytest

import glasshouse as gh

sys.path.insert(0, str(Path(__file__).parent))


def pytest_configure(config):
    """Python 3.14 warns of `return` in `finally`, which capture has to follow."""
    ignored = "ignore:'return' in a 'finally' block:SyntaxWarning"
    config.addinivalue_line("filterwarnings", ignored)


@pytest.fixture(autouse=True)
def surfacing():
    gh.capture.reset()
    gh.random.seed(0)
    with gh.capture.config.override(raise_internal_errors=True):
        yield
    gh.capture.reset()
