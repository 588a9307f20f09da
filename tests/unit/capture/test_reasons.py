"""Reasons for capturing again name the user's variable and its line, and no addresses."""

import re

import numpy as np
import pytest

import glasshouse as gh


class Config:
    """Some settings."""


config = Config()
table = {"rate": 1.5}
functions = [lambda y: y + 1]
model = gh.nn.Sequential(gh.nn.Linear(3, 3), gh.nn.ReLU())
ONES = np.ones((2, 3), np.float32)


def step(x, scale, mode, items):
    y = model(x) * scale  # line 1
    if mode == "hard":
        y = y * 2
    if config.flag:  # line 4
        y = y + table["rate"]
    for i in items:
        y = y + i
    if isinstance(config.owner, Config):  # line 8
        y = y + 3
    return functions[0](y)


def changed(monkeypatch, what: str):
    """Change one thing that `step` reads; the arguments of the call after it."""
    args = {"x": gh.asarray(ONES), "scale": 2, "mode": "hard", "items": [1, 2]}
    options = {
        "scale": 3,
        "mode": "soft",
        "items": [1, 2, 3],
        "x": gh.ones((5, 3)),
        "another scale": gh.ones(3),
    }
    if what in options:
        args[what.split()[-1]] = options[what]
    elif what == "flag":
        monkeypatch.setattr(config, "flag", 0)
    elif what == "owner":
        monkeypatch.setattr(config, "owner", object())
    elif what == "table":
        monkeypatch.setitem(table, "rate", 2.5)
    elif what == "parameter":
        monkeypatch.setattr(model[0].weight, "requires_grad", False)
    return args.values()


WHAT = {
    "scale": ("scale == 2", 1),
    "mode": ("mode == 'hard'", 2),
    "items": ("len(items) == 2", 6),
    "x": ("x.spec == float32[2, 3]", 1),
    "another scale": ("scale == 2", 1),
    "flag": ("config.flag", 4),
    "owner": ("config.owner", 8),
    "table": ("table['rate'] == 1.5", 5),
    "parameter": ("model[0].weight requires a gradient", 1),
}


@pytest.mark.parametrize("what", WHAT)
def test_a_reason_names_the_variable_and_its_line(monkeypatch, what):
    monkeypatch.setattr(config, "flag", 1, raising=False)
    monkeypatch.setattr(config, "owner", Config(), raising=False)
    fast = gh.optimize("eager")(step)
    fast(gh.asarray(ONES), 2, "hard", [1, 2])
    fast(*changed(monkeypatch, what))
    (reason,) = fast.capture.recompiles
    name, guard, old, new = reason
    variable, line = WHAT[what]
    assert name == "step" and variable in guard, reason
    assert guard.endswith(f", {__file__}:{step.__code__.co_firstlineno + line}"), reason
    assert old != new and not re.search(r"0x|object at|G\[|_parameters|__dict__", " ".join(reason))


def test_objects_that_look_alike_are_told_apart(monkeypatch):
    monkeypatch.setattr(config, "key", object(), raising=False)
    keys = {config.key: 2.0}
    fast = gh.optimize("eager")(lambda x: x * keys[config.key])
    fast(gh.asarray(ONES))
    monkeypatch.setattr(config, "key", object())
    keys[config.key] = 3.0
    assert float(fast(gh.asarray(ONES)).numpy().max()) == 3.0
    said = " ".join(fast.capture.recompiles[0])
    assert "another <object>" in said and "config.key" in said and "0x" not in said


def test_warnings_at_the_limit_have_no_addresses():
    def fn(x, key):
        return x if key is None else x * 2

    fast = gh.optimize("eager")(fn)
    with gh.capture.config.override(cache_limit=2):
        kept = [type(f"Key{i}", (), {})() for i in range(4)]
        with pytest.warns(UserWarning, match="the limit") as warned:
            for key in kept:
                fast(gh.asarray(ONES), key)
    assert all("0x" not in str(w.message) and "key" in str(w.message) for w in warned)
