"""Tests of capture: errors inside it surface, and nothing captured is left over."""

import sys
from pathlib import Path

import pytest

import glasshouse as gh

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def surfacing():
    gh.capture.reset()
    gh.random.seed(0)
    with gh.capture.config.override(raise_internal_errors=True):
        yield
    gh.capture.reset()
