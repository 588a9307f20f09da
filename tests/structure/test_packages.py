"""`import glasshouse.x as x` is the package x, also where `glasshouse.x(…)` is a call."""

import importlib
import pkgutil
import types

import pytest

import glasshouse as gh

CALLED = {"compile", "fit", "profile", "tensor"}  # packages that are their function or class too


def packages(parent: types.ModuleType) -> list[str]:
    """The names of all packages below one, without what needs PyTorch."""
    names = []
    for info in pkgutil.iter_modules(parent.__path__):
        if info.ispkg and info.name != "torch":
            name = f"{parent.__name__}.{info.name}"
            names += [name, *packages(importlib.import_module(name))]
    return names


@pytest.mark.parametrize("name", packages(gh))
def test_the_name_of_a_package_gives_the_package(name):
    parent, _, own = name.rpartition(".")
    result = getattr(importlib.import_module(parent), own)
    assert isinstance(result, types.ModuleType) and result is importlib.import_module(name)
    assert callable(result) == (name.removeprefix("glasshouse.") in CALLED)


def test_a_package_that_is_called_is_what_it_is_named_after():
    assert gh.tensor([1, 2]).tolist() == [1, 2]
    with gh.profile() as prof:
        gh.eval(gh.ones(2) + 1)
    assert isinstance(prof, gh.profile) and not isinstance(1, gh.profile)
    assert gh.profile.merge is gh.profile.profile.merge

    class Own(gh.profile):
        pass

    assert issubclass(Own, gh.profile.profile)
    with pytest.raises(AttributeError, match="'glasshouse.tensor' has no attribute 'missing'"):
        getattr(gh.tensor, "missing")  # noqa: B009


def test_calls_of_packages_are_captured():
    captured = gh.optimize(nopython=True)(lambda x: x + gh.tensor([1.0, 2.0]))
    for _ in range(2):
        assert captured(gh.ones(2)).tolist() == [2.0, 3.0]
    assert captured.hits == 1
