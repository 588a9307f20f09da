"""Work left out of traces for us changes nothing of them, and is back after each."""

import logging
import sys

import pytest

torch = pytest.importorskip("torch")

from torch._dynamo import config, guards, symbolic_convert  # noqa: E402

from glasshouse.torch.backend import lean_trace  # noqa: E402
from glasshouse.torch.patches.names import are_found  # noqa: E402

pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.skipif(
        not are_found(*(place for place, _, _ in lean_trace.STAND_INS)), reason="another PyTorch"
    ),
]
local_map = pytest.importorskip("torch.distributed.tensor.experimental._func_map")
Wrapped = lean_trace.SHOULD_WRAP.owner


def pieces() -> tuple:
    """Return the pieces that a trace of ours replaces."""
    is_at_hand = "verbose" in vars(config)
    functions = Wrapped.should_wrap_in_hop.__func__, guards.profile_guard_manager
    return *functions, symbolic_convert.get_funcname, is_at_hand


@pytest.mark.parametrize("enabled", [False, True])
def test_local_map_is_seen_as_before(enabled, monkeypatch):
    monkeypatch.setattr(Wrapped, "_enabled", enabled)
    for value in (local_map._local_map_wrapped, torch.sin, pytest, 3):
        expected = lean_trace.SHOULD_WRAP.original(value)
        assert lean_trace.should_wrap_if_imported(Wrapped, value) == expected
    assert lean_trace.SHOULD_WRAP.original(local_map._local_map_wrapped) == enabled


def test_who_has_no_local_map_imports_none(monkeypatch):
    monkeypatch.delitem(sys.modules, lean_trace.LOCAL_MAP)
    assert not lean_trace.should_wrap_if_imported(Wrapped, torch.sin)
    assert lean_trace.LOCAL_MAP not in sys.modules


def test_the_latency_of_guards_is_measured_for_a_log(monkeypatch):
    asked = []
    measured = lean_trace.GUARD_LATENCY._replace(original=lambda *inputs: asked.append(inputs))
    monkeypatch.setattr(lean_trace, "GUARD_LATENCY", measured)
    monkeypatch.setattr(lean_trace.trace_log, "handlers", [])
    assert lean_trace.latency_if_logged(1, 2, 3) == 0
    assert not asked
    monkeypatch.setattr(guards.guards_log, "isEnabledFor", lambda level: level == logging.DEBUG)
    lean_trace.latency_if_logged(1, 2, 3)
    assert asked == [(1, 2, 3)]


def test_functions_of_lines_are_looked_for_where_a_log_tells_them(monkeypatch):
    here = __file__, pieces.__code__.co_firstlineno
    log = lean_trace.calls_log
    monkeypatch.setattr(log, "isEnabledFor", lambda level: False)
    assert lean_trace.funcname_if_logged(*here) is None
    monkeypatch.setattr(log, "isEnabledFor", lambda level: level == logging.DEBUG)
    assert lean_trace.funcname_if_logged(*here) == "pieces"


def test_all_is_there_while_a_program_is_traced_for_us_and_no_longer():
    before, log = pieces(), []

    def look(module, inputs):
        log.append(pieces())
        return module.forward

    x = torch.ones(3)
    torch.compile(torch.sin, backend="glasshouse")(x)  # a reset forgets our callback until then
    torch.compile(torch.cos, backend=look)(x)
    look.traced_otherwise = True
    torch.compile(torch.tan, backend=look)(x)
    assert log[0] == before == pieces()
    assert all(a != b for a, b in zip(log[1], before, strict=True))


def test_a_setting_that_a_user_made_is_read():
    with config.patch(verbose=True), lean_trace.lean():
        assert config.verbose is True
    with lean_trace.lean():
        assert config.verbose is False
