"""Calls that no kernel computes: counted, told and refused, however they run."""

import json
import warnings

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import BackendError
from glasshouse.base.flags import flags
from glasshouse.compile.building import toolchain
from glasshouse.compile.programs import program
from glasshouse.dispatch import KernelText, primitives
from glasshouse.dispatch.fallback import Fallback, FallbackCounter
from glasshouse.profile.advice import advice
from glasshouse.profile.report import data_of

MODES = ("never", "auto", "always")


@pytest.fixture
def backend():
    with gh.backends.use("lazy") as backend:
        backend.evaluate()  # what other tests left
        yield backend
        backend.evaluate()


@pytest.fixture
def fallbacks(backend):
    """A function that gives what fell back since."""
    before = backend.fallbacks.copy()
    return lambda: backend.fallbacks.since(before)


def draw(*shape, dtype="float32"):
    return gh.asarray(np.random.default_rng(0).normal(size=shape).astype(dtype))


HERMITIAN = np.eye(11, dtype=np.float32)


def definite(n: int):
    """A matrix that has a Cholesky factor."""
    return gh.asarray(np.eye(n, dtype=np.float32) * 4)


# Of shapes that no other test has: a line is that of the first call of a kind.
LACKING = {
    "cholesky": lambda: gh.linalg.cholesky(definite(17)),
    "cumsum": lambda: gh.cumulative_sum(draw(71, dtype="complex64")),
    "svd": lambda: gh.linalg.svd(draw(11, 11))[1],
    "eigh": lambda: gh.linalg.eigh(gh.asarray(HERMITIAN))[0],
    "lu": lambda: gh.linalg.det(draw(11, 11)),
    "pow": lambda: draw(71, dtype="complex64") ** draw(71, dtype="complex64"),
    "matmul": lambda: draw(11, 401, dtype="float64") @ draw(401, 403, dtype="float64"),
}


# -- counted ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LACKING)
def test_what_no_kernel_computes_is_counted_and_named(fallbacks, name, mode):
    with flags.override(compile=mode):
        LACKING[name]().numpy()
    (row,) = [row for row in fallbacks().rows if row.card == name]
    assert fallbacks()[name] == fallbacks().rows[row] >= 1
    assert row.line.startswith(__file__)
    assert "float" in row.reason or "complex" in row.reason


def test_every_run_is_counted_also_of_calls_that_are_replayed(fallbacks):
    x = definite(8)
    with flags.override(compile="always"):
        for _ in range(5):
            gh.linalg.cholesky(x * 2).numpy()
    (row,) = fallbacks().rows
    assert (
        fallbacks() == {"cholesky": 5} and fallbacks().rows[row] == 5 and not fallbacks().uncompiled
    )


def test_what_kernels_compute_is_no_fallback(fallbacks):
    with flags.override(compile="always"):
        y = gh.exp(draw(8, 8)) @ draw(8, 8)
        (gh.sum(y, axis=0) + gh.cumulative_sum(y[0]) * 0).numpy()
        gh.zeros((0, 3)).sum(axis=0).numpy()  # nothing to compute
        (gh.sort(y, axis=0) + gh.argmax(y) + gh.topk(y, 3).indices.sum()).numpy()
    assert not fallbacks() and not fallbacks().uncompiled


def test_a_function_of_the_users_is_no_fallback(backend, fallbacks):
    with backend.replace("sort", lambda x, *, axis, **_: (np.sort(x, axis), np.argsort(x, axis))):
        assert primitives["sort"] and "sort" not in fallbacks()
        with flags.override(compile="always", strict=True):
            gh.sort(draw(5)).numpy()
    assert not fallbacks()


def test_short_recordings_are_told_apart(fallbacks, monkeypatch):
    """Nothing is missing: compiling them is not yet worth it, or switched off."""
    monkeypatch.setattr(program, "programs", {})
    for mode, reason in (("auto", "not yet worth it"), ("never", "GH_COMPILE=never")):
        with flags.override(compile=mode, strict=True):
            (draw(3) + 1.25).numpy()
        assert any(reason in why for why in fallbacks().uncompiled)
    assert not fallbacks() and sum(fallbacks().uncompiled.values()) == 2


# -- refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LACKING)
def test_strict_refuses_it_in_every_mode(fallbacks, name, mode):
    with flags.override(compile=mode, strict=True), pytest.raises(BackendError) as refused:
        LACKING[name]().numpy()
    text = str(refused.value)
    assert f"'{name}', called at {__file__}" in text and "strict" in text
    assert "float" in text or "complex" in text
    assert not fallbacks()


def test_strict_refuses_a_new_kind_of_call_where_it_stands(fallbacks):
    x = definite(23)
    with flags.override(strict=True), pytest.raises(BackendError, match="'cholesky', called at"):
        gh.linalg.cholesky(x)
    assert (x + 1).numpy().shape == (23, 23)  # what was recorded before is as it was


def test_strict_that_is_set_later_refuses_before_anything_is_overwritten(fallbacks):
    """The call is known and recorded without a look; its Program does not begin."""
    with flags.override(compile="always"):
        w = definite(70) * 2
        gh.eval(w)
        for _ in range(2):
            w = w + gh.linalg.cholesky(w)
            gh.eval(w)
        before, refused = w.numpy().copy(), pytest.raises(BackendError, match="'cholesky', called")
        with flags.override(strict=True), refused:
            w = w + gh.linalg.cholesky(w)
            gh.eval(w)
        np.testing.assert_allclose(w.numpy(), before + np.linalg.cholesky(before))


# -- compilation that fails -------------------------------------------------------------------


def without_compiler(monkeypatch):
    def fail():
        raise toolchain.CompileError("no C compiler found; looked for nothing")

    monkeypatch.setattr(toolchain, "find_compiler", fail)
    monkeypatch.setattr(program, "warned", set())


def test_a_program_that_does_not_compile_is_a_fallback(fallbacks, monkeypatch):
    without_compiler(monkeypatch)
    with flags.override(compile="always"), pytest.warns(UserWarning, match="no C compiler"):
        y = gh.exp(draw(3, 7)) * 1.0625
        y.numpy()
    (row,) = fallbacks().rows
    assert row.card == "program" and "no C compiler" in row.reason and row.line
    y = gh.exp(draw(3, 7)) * 1.0625
    match = "a Program, called at .*no C compiler"
    with flags.override(strict=True), pytest.raises(BackendError, match=match):
        y.numpy()


def test_the_warning_names_the_kernel_that_the_compiler_refused(fallbacks, monkeypatch):
    monkeypatch.setattr(program, "warned", set())
    monkeypatch.setattr(primitives["expm1"], "kernel", KernelText("no_such_function({x}) +"))
    with flags.override(compile="always"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y = gh.expm1(definite(9)) - gh.linalg.cholesky(definite(9))
        y.numpy()
    (message,) = [str(w.message) for w in caught if "not compiled" in str(w.message)]
    assert "kernel 1, expm1 + sub: " in message and "no_such_function" in message
    assert "Install gcc" not in message and "Report it" in message
    assert {row.card for row in fallbacks().rows} == {"program", "cholesky"}


# -- shown ------------------------------------------------------------------------------------


def test_debug_prints_each_kind_once(backend, capsys):
    x = definite(12)
    with flags.override(debug=1, compile="always"):
        for _ in range(3):
            gh.linalg.cholesky(x).numpy()
    lines = [line for line in capsys.readouterr().out.splitlines() if "cholesky" in line]
    assert len(lines) == 1
    expected = "[gh] lazy runs the NumPy reference of cholesky: no kernel for float32"
    assert lines[0].startswith(expected)
    assert __file__ in lines[0]


def test_profile_report_trace_and_explain_show_the_same_list(backend, tmp_path):
    def step(x):
        return gh.linalg.cholesky(gh.abs(x) * 2)

    x = definite(140)
    with flags.override(compile="always"):
        step(x).numpy()
        with gh.profile() as p:
            step(x).numpy()
        explained = gh.explain(step, x)
    (line,) = p.trace.fallbacks.lines()
    assert line.startswith("1 run of cholesky: no kernel for float32") and __file__ in line
    assert f"fallback: {line}" in p.key_averages().table()
    data = data_of(p.trace)
    assert data["fallbacks"] == {"cholesky": 1} and data["fallback_lines"] == [line]
    texts = [str(x) for x in advice(p.trace)]
    assert any("cholesky" in text and "no kernel for float32" in text for text in texts)
    trace = json.loads(p.export_chrome_trace(tmp_path / "t.json").read_text("utf-8"))
    assert trace["fallbacks"] == [line]
    args = [e["args"] for e in trace["traceEvents"] if e.get("args", {}).get("kind") == "host"]
    assert args and all(a["fallback"].startswith("no kernel for float32") for a in args)
    assert explained.fallbacks.lines() == [line] and f"fallbacks\n  {line}" in str(explained)


def test_captured_functions_fall_back_with_their_line(backend, fallbacks):
    def step(x):
        y = gh.abs(x)
        return gh.linalg.cholesky(y) * 2

    captured, x = gh.optimize(step), definite(61)
    for _ in range(3):
        captured(x).numpy()
    ((row, runs),) = fallbacks().rows.items()
    assert row.card == "cholesky" and runs == 3
    assert row.line == f"{__file__}:{step.__code__.co_firstlineno + 2}"


def test_a_counter_tells_what_is_new():
    counter = FallbackCounter()
    assert counter.count(Fallback("sort", "why")) and not counter.count(Fallback("sort", "why"))
    before = counter.copy()
    assert counter.count(Fallback("sort", "why", "x.py:1"))
    counter.uncompiled["short"] += 1
    assert counter == {"sort": 3} and before == {"sort": 2}
    since = counter.since(before)
    assert since == {"sort": 1}
    assert since.lines() == ["1 run of sort: why (x.py:1)", "1 run by references: short"]
    assert str(FallbackCounter()) == "no fallbacks"
