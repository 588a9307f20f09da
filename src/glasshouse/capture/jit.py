"""`jit`: a function called once with stand-ins for its tensors, and run as one Program after that.

Its calls on tensors are recorded for each set of shapes, dtypes and other arguments. Where the
recording misses a part of the function (it looks at a value, writes to a tensor, draws from a
generator, or differentiates a closed-over tensor), `optimize` captures it instead."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from glasshouse.base import OptionError, flatten, unflatten
from glasshouse.base.tree import TreeDef
from glasshouse.capture.api import optimize
from glasshouse.capture.programs.run_payloads import payload_on
from glasshouse.compile.building.toolchain import CompileError
from glasshouse.compile.planning.plan import rewritten
from glasshouse.compile.programs.binding import arrays_of, payloads_of
from glasshouse.compile.programs.executable import IndexErrorInside, Program
from glasshouse.compile.programs.program import compiled_graph, warn_once
from glasshouse.dispatch import SCALARS, Value, as_value, box, state, timers
from glasshouse.dispatch import backend as backends
from glasshouse.graph.graph import Graph, graph_of_body
from glasshouse.ops.body import Body, traced
from glasshouse.ops.scan import is_tracked
from glasshouse.tensor import random

MOST_PROGRAMS = 64  # of one function
SMALL = 1 << 16  # bytes of scratch memory, and of a result, which are Python's own
STATIC = (*SCALARS, str, bytes, type(None))


class UntraceableFunction(Exception):
    """A function of which calls of cards do not say all."""


class TracedFunction:
    """A function written down: `body` on the tensors among its arguments and on `captured` ones.
    Results that are no tensors stay as they were."""

    out_def: TreeDef

    def __init__(self, fn: Callable[[list[Any]], Any], specs: list[Any]) -> None:
        draws: list[Any] = []
        random.observers.append(draws)
        try:
            tracer, inputs, outputs = traced(
                lambda *xs: self.run(fn, xs), specs, hoists=False, writes_scalars=True
            )
        finally:
            random.observers.remove(draws)
            for generator, _ in draws:
                generator.draws -= 1
        numbers = [tracer.number_of(x) for x in outputs]
        inner = [x.payload for x in inputs]
        consts = tracer.roots(numbers, inner)
        self.captured: list[Any] = [tracer.captured[i] for i in consts]
        self.draws: bool = bool(draws) or tracer.step is not None
        self.body: Body = tracer.body([*inner, *consts], numbers)

    def run(self, fn: Callable[[list[Any]], Any], inputs: Any) -> list[Any]:
        leaves, self.out_def = flatten(fn(list(inputs)))
        self.is_tensor: list[bool] = [isinstance(x, (Value, np.ndarray, *SCALARS)) for x in leaves]
        self.others: list[Any] = [
            x for x, is_one in zip(leaves, self.is_tensor, strict=True) if not is_one
        ]
        return [as_value(x) for x, is_one in zip(leaves, self.is_tensor, strict=True) if is_one]

    def tree(self, tensors: list[Any]) -> Any:
        """The result of the function, with these tensors in it."""
        if not self.others:
            return unflatten(self.out_def, tensors)
        mine, others = iter(tensors), iter(self.others)
        leaves = [next(mine) if is_one else next(others) for is_one in self.is_tensor]
        return unflatten(self.out_def, leaves)


class JitProgram:
    """The Program of a traced function."""

    def __init__(self, function: TracedFunction) -> None:
        self.function = function
        graph = graph_of_body(function.body, function.body.outputs)
        self.specs: list[Any] = [node.spec for node in graph.outputs]
        self.program: Program = compiled_graph(rewritten(graph), SMALL)

    def run(self, operands: list[Value], backend: Any) -> Any:
        """The results for these operands."""
        values = (*operands, *self.function.captured)
        arrays = arrays_of([payload_on(backend, x) for x in values])
        payloads = payloads_of(self.program.run(arrays, []), self.specs, self.program.owns)
        return self.function.tree([box(x, x.spec, backend) for x in payloads])


class JitFunction:
    """A function that `jit` made."""

    def __init__(self, fn: Callable[..., Any], numbers: tuple[int, ...], names: Any) -> None:
        self.fn = fn
        self.numbers = numbers
        self.names: frozenset[Any] = frozenset(names)
        self.programs: dict[Any, JitProgram | None] = {}
        self.reason: str = ""  # why it is captured instead
        functools.update_wrapper(self, fn, updated=())

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    @functools.cached_property
    def captured(self) -> Callable[..., Any]:
        """The function as `optimize` captures it."""
        return optimize(self.fn)

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        if state.modes:
            return self.fn(*args, **named)
        backend = state.backend or backends.current()
        if self.reason or timers or not getattr(backend, "keeps_programs", False):
            return self.captured(*args, **named)
        leaves, treedef, fixed = self.parts(args, named)
        operands, key = [], [treedef, fixed]
        for x in leaves:
            if isinstance(x, Value):
                if x.tape_entry is not None and state.records:
                    return self.captured(*args, **named)
                operands.append(x)
                key.append(x.spec)
            elif isinstance(x, np.ndarray):
                x = as_value(x)
                operands.append(x)
                key.append(x.spec)
            else:
                key.append((type(x), x))
        try:
            program = self.programs.get(tuple(key))
        except TypeError:  # an argument that has no hash
            return self.captured(*args, **named)
        if program is None:
            program = self.make(tuple(key), leaves, treedef, fixed)
            if program is None:
                return self.captured(*args, **named)
        try:
            return program.run(operands, backend)
        except IndexErrorInside:
            return self.fn(*args, **named)  # raises with the index

    def parts(self, args: Any, named: dict[str, Any]) -> Any:
        """(leaves of the arguments, their structure, those that are static)."""
        if not self.numbers and not self.names:
            leaves, treedef = flatten((args, named) if named else args)
            return leaves, treedef, bool(named)
        numbers = {n + len(args) if n < 0 else n for n in self.numbers}
        dynamic = tuple(x for i, x in enumerate(args) if i not in numbers)
        fixed = (
            tuple((i, args[i]) for i in sorted(numbers) if i < len(args)),
            tuple((name, named[name]) for name in sorted(self.names & set(named))),
        )
        rest = {name: x for name, x in named.items() if name not in self.names}
        leaves, treedef = flatten((dynamic, rest))
        return leaves, treedef, fixed

    def call(self, leaves: list[Any], treedef: TreeDef, fixed: Any) -> Any:
        """The function on arguments that were taken apart."""
        tree = unflatten(treedef, leaves)
        if fixed is False:
            return self.fn(*tree)
        args, named = tree
        if fixed is True:
            return self.fn(*args, **named)
        places, names = fixed
        args = list(args)
        for i, x in places:
            args.insert(i, x)
        return self.fn(*args, **named, **dict(names))

    def make(self, key: Any, leaves: list[Any], treedef: TreeDef, fixed: Any) -> JitProgram | None:
        """The Program for such arguments; None where the function is to be captured instead."""
        if len(self.programs) >= MOST_PROGRAMS:
            self.reason = f"more than {MOST_PROGRAMS} kinds of arguments"
            return None
        at = [i for i, x in enumerate(leaves) if isinstance(x, (Value, np.ndarray))]
        specs = [as_value(leaves[i]).spec for i in at]

        def run(inputs):
            every = list(leaves)
            for i, x in zip(at, inputs, strict=True):
                every[i] = x
            return self.call(every, treedef, fixed)

        try:
            function = TracedFunction(run, specs)
            if function.draws:
                raise UntraceableFunction("it draws from a generator; keys are arguments")
            if any(map(is_tracked, function.captured)):
                raise UntraceableFunction("it closes over tensors with requires_grad")
            program = self.programs[key] = JitProgram(function)
        except CompileError as error:
            warn_once(error)
            self.reason = str(error)
            return None
        except Exception as error:  # it runs again as Python, which raises what it has to
            self.reason = str(error)
            return None
        return program


def jit(
    fun: Callable[..., Any] | None = None,
    *,
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> Any:
    """Compile `fun`: it is called once for each set of shapes, dtypes and other arguments, and
    runs as one Program from then on, with its gradients, loops and conditions inside. Side effects
    such as a print happen only in that first call. A function that looks at a value, writes to a
    tensor, draws from a generator or is differentiated by `backward` is captured by `gh.optimize`.
    Inside a transform it runs as it is.

    `static_argnums` and `static_argnames` name arguments that are part of the Program; Python
    numbers always are.

    Raises: OptionError unless `fun` can be called.
    Source: Bradbury et al., JAX, 2018 (jit).
    Example:
        >>> slope = gh.jit(gh.grad(lambda x: gh.sin(x) * x))
        >>> round(slope(gh.tensor(1.0)).item(), 4)
        1.3818
    """
    numbers = static_argnums if isinstance(static_argnums, Iterable) else (static_argnums,)
    names = [static_argnames] if isinstance(static_argnames, str) else static_argnames
    if fun is None:
        make: Any = jit
        return functools.partial(
            make, static_argnums=static_argnums, static_argnames=static_argnames
        )
    if not callable(fun):
        raise OptionError("jit", "a function", repr(fun), "Pass one.")
    return JitFunction(fun, tuple(numbers), names_of(fun, tuple(numbers), names))


def names_of(fun: Callable[..., Any], numbers: tuple[int, ...], names: Any) -> set[str]:
    """The names of static arguments, those with a number too, for calls by name."""
    try:
        order = list(inspect.signature(fun).parameters)
    except (TypeError, ValueError):
        order = []
    return {*names, *(order[n] for n in numbers if -len(order) <= n < len(order))}


def make_graph(
    fun: Callable[..., Any], static_argnums: int | Iterable[int] = ()
) -> Callable[..., Graph]:
    """A function of fun's arguments that returns the graph of primitives that fun calls on them.
    Its text is Python that runs; loops and branches have their bodies in it.

    Raises: TransformError where fun needs the contents of a value.
    Source: Bradbury et al., JAX, 2018 (make_jaxpr).
    Example:
        >>> print(gh.make_graph(lambda x: gh.exp(x) + 1)(gh.zeros(3)))
        from glasshouse import *
        <BLANKLINE>
        <BLANKLINE>
        def program(v0):
            v1 = primitives['exp'](v0)  # float32[3]
            v2 = primitives['full'](shape=(3,), value=1, dtype=float32)  # float32[3]
            v3 = primitives['add'](v1, v2)  # float32[3]
            return v3
    """
    numbers = static_argnums if isinstance(static_argnums, Iterable) else (static_argnums,)
    whole = JitFunction(fun, tuple(numbers), ())

    @functools.wraps(fun)
    def graph(*args, **named):
        leaves, treedef, fixed = whole.parts(args, named)
        values = [as_value(x, where="make_graph") for x in leaves]
        function = TracedFunction(
            lambda inputs: whole.call(inputs, treedef, fixed), [x.spec for x in values]
        )
        return graph_of_body(function.body, function.body.outputs)

    return graph
