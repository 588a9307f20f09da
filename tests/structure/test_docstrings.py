"""Every public name says what it gives, and every example in a docstring runs."""

import doctest
import importlib
import importlib.util
import inspect
import pkgutil

import numpy as np
import pytest

import glasshouse as gh
from glasshouse import interop, nn

PACKAGES = (
    gh,
    gh.autograd,
    gh.backends,
    gh.data,
    gh.dispatch,
    gh.fft,
    gh.linalg,
    gh.metrics,
    gh.optim,
    gh.random,
    nn,
    nn.functional,
    nn.init,
    interop,
)
HAS_TORCH = importlib.util.find_spec("torch") is not None
PLAIN = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def modules():
    """Every module of the package but the torch backend and the command line's entry; those for
    PyTorch programs where it is installed."""
    for info in pkgutil.walk_packages(gh.__path__, "glasshouse."):
        if info.name.startswith("glasshouse.torch.") and not HAS_TORCH:
            continue
        if ".backends.torch" not in info.name and not info.name.endswith("__main__"):
            yield importlib.import_module(info.name)


def documented():
    """(name, docstring, module) of everything with a docstring, each once."""
    visited = set()
    for module in modules():
        for name, x in vars(module).items():
            own = getattr(x, "__module__", None) == module.__name__
            if not own or id(x) in visited or not callable(x):
                continue
            visited.add(id(x))
            yield f"{module.__name__}.{name}", inspect.getdoc(x), module
            if inspect.isclass(x):
                for part, member in vars(x).items():
                    member = getattr(member, "__func__", member)
                    own = getattr(member, "__module__", None) == module.__name__
                    if own and inspect.isfunction(member) and member.__doc__:
                        yield f"{module.__name__}.{name}.{part}", inspect.getdoc(member), module


EXAMPLES = [entry for entry in documented() if entry[1] and ">>>" in entry[1]]


@pytest.mark.parametrize("entry", EXAMPLES, ids=[name for name, *_ in EXAMPLES])
def test_example(entry):
    name, text, module = entry
    scope = {**vars(module), "gh": gh, "np": np, "nn": nn}
    test = doctest.DocTestParser().get_doctest(text, scope, name, None, None)
    assert test.examples
    report = []
    runner = doctest.DocTestRunner(optionflags=PLAIN, verbose=False)
    gh.random.seed(0)
    # Functions that PyTorch compiled take names out of the scope when they go.
    runner.run(test, out=report.append, clear_globs=False)
    assert runner.failures == 0, "".join(report)


def test_there_are_many_examples():
    assert len(EXAMPLES) > 200


@pytest.mark.parametrize("package", PACKAGES, ids=lambda p: p.__name__)
def test_public_names_are_documented(package):
    names = getattr(package, "__all__", None) or [n for n in dir(package) if not n.startswith("_")]
    for name in names:
        x = getattr(package, name)
        if inspect.isclass(x) or inspect.isfunction(x):
            assert (x.__doc__ or "").strip(), f"{package.__name__}.{name}"


@pytest.mark.parametrize("cls", [gh.Tensor, nn.Module], ids=lambda c: c.__name__)
def test_public_methods_are_documented(cls):
    for name, member in inspect.getmembers(cls, inspect.isfunction):
        if not name.startswith("_"):
            assert (member.__doc__ or "").strip(), f"{cls.__name__}.{name}"
