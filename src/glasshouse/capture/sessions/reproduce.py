"""Reproductions: a standalone script that shows how a compiler fails on a captured graph.

It has the graph as Python, inputs made from their specs and a seed, and the compiler's name. Calls
are left out while it still fails in the same way. Each trial runs the script itself, so the script
that is written has failed."""

import base64
import importlib
import inspect
import pickle
import re
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from glasshouse import nn
from glasshouse.autograd.tape import enable_grad
from glasshouse.base.dtype import DType
from glasshouse.base.shape import Spec
from glasshouse.capture.sessions.config import counters
from glasshouse.dispatch import primitives, state
from glasshouse.dispatch.watch import unwatched
from glasshouse.ir import GraphModule, IRGraph, IRNode
from glasshouse.nn.module import Module, Parameter
from glasshouse.tensor import Tensor, random

WRONG = "wrong numbers"
SCRIPT = '''"""{title}"""

import numpy as np

import glasshouse as gh
{imports}

SEED, DYNAMIC = 0, {dynamic}


def sample(rng, shape, dtype, low=0, high=1):
    """A tensor of normal numbers, or of integers from low to high."""
    floating = "float" in dtype or "complex" in dtype
    x = rng.normal(size=shape) if floating else rng.integers(low, high + 1, shape)
    return gh.asarray(np.asarray(x)).astype(dtype)


class Model(gh.nn.Module):
    def __init__(self, rng):
        super().__init__()
{members}

{forward}

def inputs(rng):
    return [
{inputs}
    ]


def run(compiler):
    gh.random.seed(SEED)
    rng = np.random.default_rng(SEED)
    model = Model(rng)
    with gh.capture.config.override(raise_compiler_errors=True, repro_dir=""):
        fast = gh.optimize(compiler, nopython=True, dynamic=DYNAMIC)(model)
        return [*fast(*inputs(rng)), *model.parameters()]


def check(want, got):
    for a, b in zip(want, got, strict=True):
        if isinstance(a, gh.Tensor):
            loose = 3e-2 if a.dtype.itemsize < 4 else 1e-3
            a, b = a.detach().numpy(), b.detach().numpy()
            np.testing.assert_allclose(b, a, rtol=loose, atol=loose)


if __name__ == "__main__":
    want = run("eager")
    check(want, run(COMPILER))
'''


class Reproduction:
    """Tries a compiler on a graph and on parts of it; `inputs` are those of the graph."""

    def __init__(
        self, module: GraphModule, inputs: list[Tensor], compiler: Callable[..., Any], name: str
    ) -> None:
        self.module = module
        self.name = name
        self.label: Any = getattr(compiler, "__name__", None) or repr(compiler)
        self.compiler: list[str] = compiler_text(compiler)
        nodes = module.graph.nodes
        holes = [n for n in nodes if n.op == "placeholder"]
        self.input_texts: dict[Any, str] = {
            n: input_text(x) for n, x in zip(holes, inputs, strict=True)
        }
        self.dynamic: bool = any(n.meta.get("sizes") or n.meta.get("number") for n in holes)
        self.calls: list[Any] = [n for n in nodes if n.op.startswith("call_")]

    def text(self, calls: list[IRNode], title: str = "") -> str:
        """The script with some of the calls; results of other calls that they read are inputs."""
        graph, inputs = self.part(set(calls))
        code, texts, members = graph.python_code(), dict[Any, Any](), {}
        imports = [line for pair in code.names.items() for line in constant_text(*pair)]
        for node in graph.find("call_module") + graph.find("get_attr"):
            member = self.module.member(node.target)
            members[node.target] = texts.get(id(member)) or member_text(member)
            if isinstance(member, Module):
                named = member.named_parameters()
                texts |= {id(x): f"self.{node.target}.{path}" for path, x in named}
        return SCRIPT.format(
            title=title,
            dynamic=self.dynamic,
            imports="\n".join([*imports, *self.compiler]),
            members="\n".join(f"        self.{k} = {v}" for k, v in members.items()),
            forward=textwrap.indent(code.text, "    "),
            inputs="\n".join(f"        {x}," for x in inputs),
        )

    def part(self, calls: set[IRNode]) -> tuple[IRGraph, list[str]]:
        """(graph, its inputs) of some of the calls."""
        for node in reversed(self.calls):
            if node in calls:  # only tensors can be inputs
                reads = (x for x in node.all_input_nodes if x.op.startswith("call_"))
                calls |= {x for x in reads if x.meta.get("spec") is None}
        graph, copies, inputs = IRGraph(), dict[Any, Any](), []
        reads = {x for node in calls for x in node.all_input_nodes}
        for node in self.module.graph.nodes:
            if node in calls or node.op == "get_attr" and node in reads:
                graph.copy_node(node, copies).meta = {"spec": node.meta.get("spec")}
            elif node in reads:
                copies[node] = graph.placeholder(node.name)
                inputs.append(self.input_texts.get(node) or spec_text(node.meta["spec"]))
        results = self.module.graph.nodes[-1].all_input_nodes
        ends = [n for n in self.calls if n in calls and not n.users.keys() & calls or n in results]
        graph.output(tuple(copies[n] for n in ends if n in calls and n.meta.get("spec")))
        return graph, inputs

    def outcome(self, calls: list[IRNode]) -> str | None:
        """How the script with these calls fails: a kind of exception, WRONG, or None."""
        space: dict[Any, Any] = {"__name__": "reproduction"}
        with apart():
            try:
                exec(compile(self.text(calls), "<reproduction>", "exec"), space)
                want = space["run"]("eager")
            except Exception:  # these calls do not fit together
                return None
            try:
                got = space["run"](space["COMPILER"])
                space["check"](want, got)
            except AssertionError:
                return WRONG
            except Exception as error:
                self.error = repr(error)
                return type(error).__qualname__
        return None

    error: str = WRONG

    def smallest(self) -> tuple[list[IRNode], str | None]:
        """(the calls that the failure needs, how it fails)."""
        failure = self.outcome(self.calls)
        if failure is None:
            return self.calls, None
        calls = minimise(self.calls, lambda calls: self.outcome(calls) == failure)
        self.outcome(calls)
        return calls, failure

    def write(self, path: Any) -> Path:
        """Write the smallest script that fails."""
        calls, failure = self.smallest()
        if failure is None:
            end = "does not fail on this graph with inputs like the real ones"
        else:
            end = f"fails on this graph: {self.error if failure != WRONG else WRONG}"
        count = f"{len(calls)} of its {len(self.calls)} operations"
        title = f"{self.label} {end}.\n\nOf {self.name}: {count}. Run the file to see it.\n"
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.text(calls, title.replace("\\", "\\\\").replace('"""', "'''")))
        return path


def minimise(items: list[Any], fails: Callable[..., Any]) -> list[Any]:
    """A minimal list of items for which `fails` is true.

    Source: Zeller and Hildebrandt 2002, Simplifying and isolating failure-inducing input (ddmin).
    """
    count = 2
    while len(items) > 1:
        size = -(-len(items) // count)
        chunks = [items[i : i + size] for i in range(0, len(items), size)]
        rests = [[x for x in items if x not in chunk] for chunk in chunks]
        failing = next((x for x in chunks if fails(x)), None)
        if failing is not None:
            items, count = failing, 2
            continue
        failing = next((x for x in rests if fails(x)), None) if count > 2 else None
        if failing is not None:
            items, count = failing, max(count - 1, 2)
        elif count >= len(items):
            return items
        else:
            count = min(2 * count, len(items))
    return items


@contextmanager
def apart() -> Iterator[None]:
    """Context: the library is in the state of a new script; afterwards its state is restored."""
    generator = random.default_generator()
    before, counted, modes = generator.state(), dict(counters), state.modes
    state.modes = ()
    try:
        with unwatched(), enable_grad():
            yield
    finally:
        state.modes = modes
        generator.set_state(before)
        counters.clear()
        counters.update(counted)


# -- values as Python ------------------------------------------------------------------------------


def path_of(value: Any) -> tuple[str, str] | None:
    """(module, qualified name) under which a value can be imported; None if it cannot."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not module or not name or module == "__main__":
        return None
    try:
        target = importlib.import_module(module)
        for part in name.split("."):
            target = getattr(target, part)
    except (ImportError, AttributeError):
        return None
    return (module.replace("_operator", "operator"), name) if target is value else None


def compiler_text(compiler: Callable[..., Any]) -> list[str]:
    """Statements that set COMPILER: an import, or the source of a local function."""
    if path_of(compiler) is not None:
        return constant_text("COMPILER", compiler)
    try:
        source = textwrap.dedent(inspect.getsource(compiler))
        header = re.match(r"(?:def|class) (\w+)", source)
    except (OSError, TypeError):
        header = None
    if header is None:
        return [f"COMPILER = None  # to be filled in: {compiler!r}"]
    return ["", "", *source.splitlines(), "", "", f"COMPILER = {header[1]}"]


def constant_text(name: str, value: Any) -> list[str]:
    """Statements that make a name mean a value."""
    if value is primitives:
        return ["from glasshouse.dispatch.primitive import primitives"]
    if isinstance(value, DType):
        return [f"{name} = gh.{value.name}"]
    if isinstance(value, ModuleType):
        return [] if name == "gh" else [f"import {value.__name__} as {name}"]
    path = path_of(value)
    if path is None:
        return [f"{name} = {value_text(value)}"]
    module, (root, *rest) = path[0], path[1].split(".")
    if rest:
        return [f"from {module} import {root}", f"{name} = {'.'.join((root, *rest))}"]
    return (
        [] if module == "builtins" and root == name else [f"from {module} import {root} as {name}"]
    )


def value_text(value: Any) -> str:
    """An expression for a value that has no name: its repr, or its pickle."""
    try:
        if eval(repr(value), {}) == value:
            return repr(value)
    except Exception:  # from a user's __repr__ or __eq__, or a text that is not Python
        pass
    try:
        data = base64.b64encode(pickle.dumps(value)).decode()
    except Exception:
        return f"None  # to be filled in: {type(value).__name__}"
    return f'__import__("pickle").loads(__import__("base64").b64decode({data!r}))'


def member_text(value: Any) -> str:
    """An expression for a member of the graph's module."""
    if isinstance(value, Parameter):
        grad = "" if value.requires_grad else ", requires_grad=False"
        return f"gh.nn.Parameter({spec_text(value.spec)}{grad})"
    if isinstance(value, Tensor):
        return input_text(value)
    if isinstance(value, Module) and type(value).__module__.partition(".nn")[0] == "glasshouse":
        text = repr(value)
        try:
            same = repr(eval(text, vars(nn).copy())) == text
        except Exception:
            same = False
        if same:
            return f"gh.nn.{text}" + ("" if value.training else ".eval()")
    return value_text(value)


def spec_text(spec: "Spec", low: int = 0, high: int = 1) -> str:
    """An expression for a tensor of a spec."""
    shape = f"({', '.join(map(str, spec.shape))}{',' * (len(spec.shape) == 1)})"
    whole = "" if spec.dtype.is_floating or (low, high) == (0, 1) else f", {low}, {high}"
    return f'sample(rng, {shape}, "{spec.dtype.name}"{whole})'


def input_text(value: Any) -> str:
    """An expression for an input of the same spec, with integers in the same range."""
    if not isinstance(value, Tensor):
        return repr(value)
    if value.requires_grad:
        return f"{spec_text(value.spec)}.requires_grad_()"
    if value.dtype.kind in ("int", "uint") and value.size:
        numbers = value.numpy()
        return spec_text(value.spec, int(numbers.min()), int(numbers.max()))
    return spec_text(value.spec)
