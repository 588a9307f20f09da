"""Run PyTorch's programs in processes in which one private name after another is gone.

    python without_names.py FILE    of the names that torch/patches/FILE.py looks up

Each process is a fork of one that has imported PyTorch, and none of our modules for it. A line of
JSON for each name says how a compiled call and a captured step ended."""

import importlib
import json
import os
import sys
import traceback
from io import StringIO

import torch
import torch._dynamo
import torch._functorch.partitioners
import torch._inductor.codecache

import glasshouse as gh
from glasshouse.base.flags import flags

PATCHES = "glasshouse.torch.patches"
RAN, REFUSED = "ran", "refused"


def compiled_call():
    """The results of a compiled function and its gradient, and those of eager."""

    def f(x):
        return (x.sin() * 2).sum()

    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    y = x.detach().clone().requires_grad_()
    results, expected = torch.compile(f, backend="glasshouse")(x), f(y)
    results.backward()
    expected.backward()
    return [results, x.grad], [expected, y.grad]


def captured_step():
    """The parameters after two captured steps, and those after the same in eager."""
    parameters = []
    for wrap in (gh.optimize, lambda step: step):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        step = wrap(step)
        for _ in range(2):
            step(torch.ones(2, 3))
        parameters.append(list(model.parameters()))
    return parameters


def ended(program, path: str) -> str:
    """How a program ends: it runs as in eager, or is refused by an error that names what is
    missing, and PyTorch's version."""
    try:
        results, expected = program()
        for a, b in zip(results, expected, strict=True):
            torch.testing.assert_close(a, b)
        return RAN
    except Exception as error:
        cause, text = error, ""
        while cause is not None and "MissingNameError" not in type(cause).__name__:
            cause = getattr(cause, "inner_exception", None) or cause.__cause__ or cause.__context__
        text = "" if cause is None else str(cause)
        named = path.replace(":", ".") in text and torch.__version__ in text
        return REFUSED if named else traceback.format_exc()[-2000:]


def without(path: str) -> dict:
    """How the programs end where this name is gone."""
    names = importlib.import_module(f"{PATCHES}.names")
    is_there = names.is_there

    def is_there_but_one(name, since, use, *find):
        return is_there(name, since, use, *([missing_now] if name == path else find))

    def missing_now(name):
        raise AttributeError(name)

    names.is_there = is_there_but_one
    flags.debug, sys.stdout = 1, StringIO()
    ends = {x.__name__: ended(x, path) for x in (compiled_call, captured_step)}
    is_named = f"has no {path.replace(':', '.')}," in sys.stdout.getvalue()
    return {"path": path, "told": is_named, "found": names.NAMES[path].is_found, **ends}


def in_fork(function, *args):
    """Return the result of a function in a process of its own, a fork of this one."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        try:
            result = json.dumps(function(*args))
        except BaseException:
            result = json.dumps({"path": args[-1], "error": traceback.format_exc()[-2000:]})
        with os.fdopen(writer, "w") as out:
            out.write(result)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as result:
        text = result.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else {"path": args[-1], "error": "it ended without a result"}


def names_of(file: str) -> list[str]:
    """The names that a file of patches looks up, and this PyTorch has."""
    names = importlib.import_module(f"{PATCHES}.names").NAMES
    importlib.import_module(f"{PATCHES}.{file}")
    return [x.path for x in names.values() if x.is_found]


if __name__ == "__main__":
    for path in in_fork(names_of, sys.argv[1]):
        print(json.dumps(in_fork(without, path)), flush=True)
