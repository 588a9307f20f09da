"""The replacement: Python that does for a later call what the trace did for the first.

It reads what the graph needs, runs the compiled graph, makes what is new, writes what was written,
and then returns, or has Python do what broke the graph and goes on in resume functions. Its code
has the user's file and line, so that tracebacks show them."""

import ast
import copy
import re
import sys
import types
from collections import OrderedDict

from glasshouse.base.interrupts import hold, release
from glasshouse.capture.bytecode import VERSION
from glasshouse.capture.frame import CapturedGenerator, CaptureFrame, code_of, resume_call
from glasshouse.capture.native import native
from glasshouse.capture.values import (
    STEPS,
    CannotRebuild,
    SymbolicNumber,
    ValueSource,
    Var,
    discarded,
    stored,
)
from glasshouse.ir.node import IRNode

MAX_NESTED = 100  # of new things in one another
LITERALS = (int, bool, str, type(None))


class ReplacementEmitter:
    """Writes the body of a replacement; `names` is what its names mean."""

    def __init__(self, tracer, resumer):
        self.tracer, self.resumer = tracer, resumer
        # Whether signals wait: what a graph wrote and what Python writes go together.
        self.holds = bool(tracer.written) and any(map(is_work, tracer.graph.nodes))
        self.names: dict[str, object] = {}
        self.pooled: dict[int, str] = {}
        self.reads: list[str] = []
        self.makes: list[str] = []
        self.variables: dict[int, str] = {}
        self.kept: list = []  # keeps ids valid
        self.outputs: dict[IRNode, int] = {}
        self.output_vars: list[Var] = []
        self.busy: set[int] = set()
        self.unfilled: list[Var] = []  # cells that were made
        self.holders: list[ValueSource] = []  # containers that something else takes the place of
        self.used_behind: set[str] = set()  # names in what follows the graph

    # -- names ---------------------------------------------------------------------------------

    def pool(self, value) -> str:
        """A name for a constant."""
        if type(value) in LITERALS and (type(value) is not int or abs(value) < 1 << 60):
            return repr(value)
        name = self.pooled.get(id(value))
        if name is None:
            name = self.pooled[id(value)] = f"c{len(self.pooled)}"
            self.names[name] = value
        return name

    def fresh(self, var: Var | object) -> str:
        name = f"v{len(self.variables)}"
        self.variables[id(var)] = name
        self.kept.append(var)
        return name

    def source(self, source: ValueSource) -> str:
        """The local variable that holds what is at a source, read before anything is written."""
        variable = self.variables.get(id(source))
        if variable is not None:
            return variable
        if source.kind == "slot":
            return f"s{source.key}"
        if source.kind == "const":
            return self.pool(source.key)
        base = self.source(source.base)
        key = self.pool(source.key) if source.kind == "get" else source.key
        text = STEPS[source.kind][0].format(base, key)
        if source.kind == "lookup":
            text = f"{self.pool(stored)}({base}, {key!r})"
        name = self.fresh(source)
        self.reads.append(f"{name} = {text}")
        return name

    def name(self, var: Var) -> str:
        """An expression for a Var."""
        variable = self.variables.get(id(var))
        if variable is not None:
            return variable
        origin = var.origin
        if isinstance(origin, ValueSource):
            return self.source(origin)
        if origin is None:
            if isinstance(var.value, CapturedGenerator):
                raise CannotRebuild("a generator", var.value.site)
            return self.pool(var.value)
        if isinstance(origin, IRNode):
            return self.output(var, origin)
        if isinstance(origin, SymbolicNumber):
            return self.number(var, origin)
        if id(var) in self.busy:
            raise CannotRebuild("something new that contains itself")
        if len(self.busy) > MAX_NESTED:
            raise CannotRebuild("something new that is deeply nested")
        self.busy.add(id(var))
        try:
            name = getattr(self, f"make_{origin.kind}")(var, *origin.parts)
        finally:
            self.busy.discard(id(var))
        while self.unfilled and not self.busy:  # what is in a cell may be a function that has it
            cell = self.unfilled.pop()
            if cell.items is not None:
                self.makes.append(
                    f"{self.variables[id(cell)]}.cell_contents = {self.name(cell.items)}"
                )
        return name

    def output(self, var: Var, node: IRNode) -> str:
        at = self.outputs.get(node)
        if at is None:
            at = self.outputs[node] = len(self.outputs)
            self.output_vars.append(var)
        return f"o[{at}]"

    def number(self, var: Var, origin: SymbolicNumber) -> str:
        variable = self.variables.get(id(origin))
        if variable is None:
            text = f"{self.pool(origin.fn)}({', '.join(map(self.name, origin.args))})"
            variable = self.fresh(origin)
            self.reads.append(f"{variable} = {text}")
        return variable

    # -- making --------------------------------------------------------------------------------

    def bind(self, var: Var, text: str) -> str:
        name = self.fresh(var)
        self.makes.append(f"{name} = {text}")
        return name

    def listed(self, items) -> str:
        return "".join(f"{self.name(x)}, " for x in items)

    def make_list(self, var):
        return self.bind(var, f"[{self.listed(var.items)}]")

    def make_tuple(self, var, cls=tuple):
        text = f"({self.listed(var.items)})"
        if cls is not tuple:
            text = f"{self.pool(tuple.__new__)}({self.pool(cls)}, {text})"
        return self.bind(var, text)

    def make_set(self, var):
        items = self.listed(x for (x,) in var.items.values())
        return self.bind(var, f"{{{items}}}" if items else "set()")

    def make_dict(self, var, cls=dict):
        ordered = isinstance(var.value, OrderedDict)
        order = [k for k in var.value if k in var.items] if ordered else var.items
        pairs = [(self.name(var.items[k][0]), self.name(var.items[k][1])) for k in order]
        if cls is dict:
            return self.bind(var, "{" + ", ".join(f"{k}: {v}" for k, v in pairs) + "}")
        return self.bind(var, f"{self.pool(cls)}([{''.join(f'({k}, {v}), ' for k, v in pairs)}])")

    def make_sublist(self, var, cls):
        if any(not isinstance(x, Var) for x in var.items) or getattr(var.value, "__dict__", None):
            raise CannotRebuild(f"a new {cls.__name__}")
        name = self.bind(var, f"{self.pool(cls.__new__)}({self.pool(cls)})")
        self.makes.append(f"{self.pool(list.extend)}({name}, [{self.listed(var.items)}])")
        return name

    def make_subdict(self, var, cls):
        if getattr(var.value, "__dict__", None):
            raise CannotRebuild(f"a new {cls.__name__} with attributes")
        name = self.bind(var, f"{self.pool(cls.__new__)}({self.pool(cls)})")
        base = OrderedDict if issubclass(cls, OrderedDict) else dict
        for key, value in (var.items[k] for k in base.__iter__(var.value)):
            words = f"{name}, {self.name(key)}, {self.name(value)}"
            self.makes.append(f"{self.pool(base.__setitem__)}({words})")
        return name

    def make_object(self, var, cls):
        name = self.bind(var, f"{self.pool(object.__new__)}({self.pool(cls)})")
        self.attributes(var, name)
        return name

    def attributes(self, var, name) -> None:
        """Set what was set on something new."""
        if isinstance(var.value, BaseException):
            self.chained(var, name)
        for key, value in (var.items or {}).items():
            if value is not None:
                words = f"{name}, {key!r}, {self.name(value)}"
                self.makes.append(f"{self.pool(object.__setattr__)}({words})")

    def chained(self, var, name) -> None:
        """Set the cause, context and traceback of a new exception."""
        for attribute in ("__cause__", "__context__"):
            other = getattr(var.value, attribute)
            if other is not None:
                linked = self.tracer.tracked.get(id(other))
                if linked is None or not linked.is_new or id(linked) in self.busy:
                    raise CannotRebuild("an exception that was raised and caught")
                self.makes.append(f"{name}.{attribute} = {self.name(linked)}")
        if var.value.__traceback__ is not None:  # made by `behind_frame`: it holds no locals
            trace = self.pool(var.value.__traceback__)
            self.makes.append(f"{name}.__traceback__ = {trace}")
        if var.value.__suppress_context__:
            self.makes.append(f"{name}.__suppress_context__ = True")

    def make_call(self, var, fn, args, kwargs=None):
        if isinstance(var.value, super):
            return self.bind(var, f"super({self.listed(args)})")
        words = [self.name(x) for x in args]
        words += [f"{k}={self.name(v)}" for k, v in (kwargs or {}).items()]
        name = self.bind(var, f"{self.name(fn)}({', '.join(words)})")
        if isinstance(var.items, dict):
            self.attributes(var, name)
        return name

    def make_exception(self, var, cls, args):
        name = self.bind(var, f"{self.pool(cls.__new__)}({self.pool(cls)}, {self.listed(args)})")
        self.makes.append(f"{self.pool(BaseException.__init__)}({name}, {self.listed(args)})")
        self.attributes(var, name)
        return name

    def make_exception_value(self, var):
        """What an operation raised, and somebody caught: it would say the same again."""
        error, cls = var.value, type(var.value)
        builtin = next(base for base in cls.__mro__ if base.__module__ == "builtins")
        small = builtin.__basicsize__ == Exception.__basicsize__  # all is in args and attributes
        plain = self.tracer.is_plain((error.args, error.__dict__))
        if not plain or not (small or builtin is cls):
            raise CannotRebuild(f"a {cls.__name__} that was raised and caught")
        copier = alike if small else copy.copy
        name = self.bind(var, f"{self.pool(copier)}({self.pool(copier(error))})")
        for part in ("name", "obj"):  # of an AttributeError or NameError
            linked = self.tracer.tracked.get(id(getattr(error, part, None)))
            if linked is not None or isinstance(getattr(error, part, None), str):
                text = self.name(linked) if linked is not None else repr(getattr(error, part))
                self.makes.append(f"{name}.{part} = {text}")
        self.chained(var, name)
        return name

    def make_handled(self, var):
        return self.bind(var, f"{self.pool(sys.exc_info)}()[1]")

    def make_traceback(self, var, error):
        return self.bind(var, f"{self.name(error)}.__traceback__")

    def make_cell(self, var):
        self.unfilled.append(var)
        return self.bind(var, f"{self.pool(types.CellType)}()")

    def make_function(self, var, code, names, parts):
        closure = "None"
        if "closure" in parts:
            closure = f"({self.listed(parts['closure'].items)})"
        elif code.co_freevars:  # from 3.13 on an instruction of its own gives it the closure
            closure = f"({f'{self.pool(types.CellType)}(), ' * len(code.co_freevars)})"
        words = f"{self.pool(code)}, {self.pool(names)}, {code.co_name!r}, None, {closure}"
        name = self.bind(var, f"{self.pool(types.FunctionType)}({words})")
        for part in ("defaults", "kwdefaults"):
            if part in parts:
                self.makes.append(f"{name}.__{part}__ = {self.name(parts[part])}")
        if "annotations" in parts:
            self.makes.append(f"{name}.__annotations__ = {self.pool(var.value.__annotations__)}")
        self.attributes(var, name)
        return name

    def make_method(self, var, this, inner):
        if isinstance(inner, Var):
            if isinstance(var.value, types.MethodType):
                words = f"{self.name(inner)}, {self.name(this)}"
                return self.bind(var, f"{self.pool(types.MethodType)}({words})")
            return self.bind(var, f"{self.name(inner)}.__get__({self.name(this)})")
        return self.bind(var, f"{self.name(this)}.{inner}")

    def make_view(self, var, base, which):
        return self.bind(var, f"{self.name(base)}.{which}()")

    def make_iterator(self, var):
        fn, *parts = var.value.recipe()
        return self.bind(var, f"{self.pool(fn)}({self.listed(parts)})")

    def make_generator(self, var, site):
        raise CannotRebuild("a generator that is not finished", site)

    # -- effects -------------------------------------------------------------------------------

    def effects(self) -> list[str]:
        """The statements that write what the trace wrote."""
        statements = []
        for var in self.tracer.written:
            target = self.name(var)
            # Of what is set in one place, the last.
            places = [
                entry[:2] if entry[0] == "attr" else entry[:1] if entry[0] == "cell" else i
                for i, entry in enumerate(var.log)
            ]
            last = {place: i for i, place in enumerate(places)}
            statements += [self.effect(var, target, *var.log[i]) for i in sorted(last.values())]
        return statements

    def effect(self, var: Var, target: str, kind: str, *parts) -> str:
        if kind == "method":
            method, args = parts
            return f"{target}.{method}({', '.join(map(self.name, args))})"
        *key, value = parts
        if kind == "attr" and value is None:
            return f"{self.pool(delete_attribute)}({target}, {key[0]!r})"
        if kind == "attr":
            setter = type.__setattr__ if isinstance(var.value, type) else object.__setattr__
            return f"{self.pool(setter)}({target}, {key[0]!r}, {self.name(value)})"
        place = f"{target}[{self.name(key[0])}]" if kind == "item" else f"{target}.cell_contents"
        return f"del {place}" if value is None else f"{place} = {self.name(value)}"

    # -- the whole -----------------------------------------------------------------------------

    def function(
        self, body: tuple[list[str], list[str]], line: int, root: types.CodeType, slots: int, graph
    ) -> types.FunctionType:
        """The replacement of these statements."""
        self.used_behind = set(re.findall(r"\w+", "\n".join([*self.makes, *body[0], *body[1]])))
        run = self.run_graph(graph) if graph is not None else []
        work, rest = [*run, *self.makes, *body[0]], body[1]
        if self.holds:
            work = [
                f"{self.pool(hold)}()",
                "try:",
                *(f"    {x}" for x in work),
                "except BaseException:",
                f"    {self.pool(release)}()",
                "    raise",
            ]
        lines = [*self.reads, *work, *rest]
        head = f"def replacement({', '.join(f's{i}' for i in range(slots))}):"
        text = "\n".join([head, *(f"    {line}" for line in lines)])
        self.names["graph"] = getattr(graph, "run", graph)
        self.text = text
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if hasattr(node, "lineno"):
                node.lineno = node.end_lineno = line or root.co_firstlineno
        exec(compile(tree, root.co_filename, "exec"), self.names)
        made = self.names.pop("replacement")
        made.__code__ = made.__code__.replace(co_name=root.co_name, co_qualname=root.co_qualname)
        return made

    def run_graph(self, graph) -> list[str]:
        """The statements that run the graph. One with `run_first` takes lists, and may overwrite
        what is replaced behind it if nobody else refers to it: nor does a name here."""
        names = [self.name(var) for _, var in self.tracer.inputs]
        if not hasattr(graph, "run_first"):
            return [f"o = graph({', '.join(names)})"]
        holders = list(map(self.source, self.holders))
        nodes = (node for node, _ in self.tracer.inputs)
        replaced = {x for x, node in zip(names, nodes, strict=True) if "replaced" in node.meta}
        dropped = {*replaced, *holders} - self.used_behind
        dropped = sorted(x for x in dropped if names.count(x) < 2)
        if not dropped:
            return [f"o = graph([{', '.join(names)}])"]
        return [
            f"i, h = [{', '.join(names)}], [{', '.join(holders)}]",
            f"del {', '.join(dropped)}",
            "o = graph(i, h)",
        ]

    def mark_replaced(self) -> None:
        """Mark the graph's tensors that something else takes the place of, or of a container that
        they are in; `meta["replaced"]` says which of the `holders` those containers are."""
        places = {}
        for written in self.tracer.written:
            for kind, *parts in written.log:
                if kind in ("item", "attr"):
                    key = parts[0].value if kind == "item" else parts[0]
                    places[id(written.origin), kind, key_of(key)] = parts[1]
        for node, var in self.tracer.inputs:
            source, containers, new = var.origin, [], var
            while isinstance(source, ValueSource) and source.kind in ("get", "item"):
                base, kind = source.base, "item"
                if base.kind == "dict":
                    base, kind = base.base, "attr"
                new = places.get((id(base), kind, key_of(source.key)), var)
                if new is not var or kind == "attr":
                    break
                containers.append(base)
                source = base
            if new is not var:
                self.holders += [x for x in containers if x not in self.holders]
                node.meta["replaced"] = tuple(map(self.holders.index, containers))

    def is_used_behind(self, source: ValueSource) -> bool:
        """Whether what follows the graph uses what was read at a source."""
        name = f"s{source.key}" if source.kind == "slot" else self.variables.get(id(source))
        return name in self.used_behind

    def at_end(self, how: str, var: Var) -> tuple[list[str], list[str]]:
        """The statements that end a trace that went to its end: `how` is return or raise."""
        result = self.name(var)
        work = [*self.effects(), *self.enter_contexts()]
        return work, [*self.releasing(), f"{how} {result}"]

    def releasing(self) -> list[str]:
        """The statement behind which signals wait no more."""
        return [f"{self.pool(release)}()"] if self.holds else []

    def at_break(self, graph_break) -> tuple[list[str], list[str]]:
        """The statements that go on behind a break."""
        tracer = self.tracer
        frames = tracer.frames
        for caller, frame in zip(frames, frames[1:], strict=False):
            if frame.then not in (None, discarded):
                what = "a call in the middle of an operation"
                raise CannotRebuild(what, (caller.code, caller.at))
        for frame in frames:
            if frame.generator is not None:
                raise CannotRebuild("a generator that is running", frame.generator.site)
        captured = graph_break.fn is not None
        tail = self.tail(0, graph_break, captured)
        return [*self.effects(), *self.enter_contexts()], [*tail, "return r"]

    def enter_contexts(self) -> list[str]:
        return [f"{self.name(var)}.__enter__()" for var in self.tracer.contexts]

    def tail(self, k: int, graph_break, captured: bool) -> list[str]:
        """Statements that set r to the result of frame `k`."""
        frames = self.tracer.frames
        frame = frames[k]
        if k + 1 < len(frames):
            steps, init = self.tail(k + 1, graph_break, captured), frames[k + 1].init
            if frames[k + 1].scope is not None:
                _, context, var = frames[k + 1].scope
                head = f"with {self.pool(context)}({self.name(var)}):"
                steps = [head, *(f"    {x}" for x in steps)]
            result = "r" if init is None else self.name(init)
            result = None if frames[k + 1].then is discarded else result
        elif captured:
            words = [self.name(x) for x in graph_break.args_]
            words += [f"{n}={self.name(v)}" for n, v in graph_break.kwargs.items()]
            if graph_break.loop is not None:
                words.append(self.pool(END_OF_LOOP))
            call, result = f"{self.callee(graph_break.fn)}({', '.join(words)})", "r"
            if frame.handled or self.tracer.began_handling:
                error = self.name(frame.handled[-1]) if frame.handled else "None"
                words = [error, self.callee(graph_break.fn), *words]
                call = f"{self.pool(handling)}({', '.join(words)})"
            steps = [*self.releasing(), f"r = {call}"]
        else:
            steps = self.releasing()
        if k + 1 < len(frames) or captured:
            then = self.after(
                frame, graph_break if k + 1 == len(frames) else None, result, captured
            )
        else:
            then = [f"r = {self.resume(frame, frame.at, frame.stack, None, False)}"]
        handler = frame.code.handler_at(frame.at)
        if handler is None or not steps:
            return [*steps, *then]
        stack = frame.stack_for(handler)
        caught = self.resume(frame, handler.target, stack, "e", captured)
        return [
            "e = None",
            "try:",
            *(f"    {x}" for x in steps),
            "except BaseException as raised:",
            "    e = raised",
            "if e is not None:",
            f"    r = {caught}",
            "else:",
            *(f"    {x}" for x in then),
        ]

    def callee(self, fn: Var) -> str:
        """An expression for a function; a constant one by a name, even where it is a number."""
        if fn.origin is not None or type(fn.value) not in LITERALS:
            return self.name(fn)
        self.names["called"] = fn.value
        return "called"

    def after(
        self, frame: CaptureFrame, graph_break, result: str | None, captured: bool
    ) -> list[str]:
        """What follows the opaque step in its frame."""
        if graph_break is not None and graph_break.jump is not None:
            ways = []
            for at, drop in graph_break.jump:
                stack = frame.stack[: len(frame.stack) - drop]
                ways.append(self.resume(frame, at, stack, None, captured))
            return ["if r:", f"    r = {ways[0]}", "else:", f"    r = {ways[1]}"]
        if graph_break is not None and graph_break.loop is not None:
            done = self.resume(
                frame, loop_end(frame, graph_break.loop), frame.stack[:-1], None, captured
            )
            more = self.resume(frame, frame.ip, frame.stack, "r", captured)
            test = f"if r is {self.pool(END_OF_LOOP)}:"
            return [test, f"    r = {done}", "else:", f"    r = {more}"]
        extra = None if graph_break is not None and graph_break.discard else result
        return [f"r = {self.resume(frame, frame.ip, frame.stack, extra, captured)}"]

    def resume(
        self, frame: CaptureFrame, at: int, stack: list[Var], extra: str | None, captured: bool
    ) -> str:
        """A call of the resume function at an instruction; `extra` is pushed onto the stack."""
        fn, slots, pushed = resume_call(frame, at, stack, bool(extra), captured, self.resumer)
        items = [*filter(None, [extra]), *map(self.name, pushed)]
        words = [self.name(x) if x is not None else "None" for x in slots] or ["None"]
        words[0] = f"({', '.join([words[0], *items])},)"
        called = self.pool(fn) if self.is_fixed(frame) else self.made_anew(frame, fn)
        if (frame.handled or self.tracer.began_handling) and extra != "e":
            error = self.name(frame.handled[-1]) if frame.handled else "None"
            return f"{self.pool(handling)}({error}, {called}, {', '.join(words)})"
        if frame is self.tracer.frames[0]:  # called when the replacement is gone
            return f"{self.pool(native().tail_call)}({called}, {', '.join(words)})"
        return f"{called}({', '.join(words)})"

    def is_fixed(self, frame: CaptureFrame) -> bool:
        """Whether a resume function of a frame has the same closure, if any, in each call."""
        origins = [cell.origin for cell in frame.closure] if frame.code.keeps_closure else []
        return all(isinstance(x, ValueSource) and x.kind in ("const", "slot") for x in origins)

    def made_anew(self, frame: CaptureFrame, fn) -> str:
        """A resume function with the cells of the call."""
        code, names = code_of(fn), frame.globals
        made = f"{self.pool(types.FunctionType)}({self.pool(code)}, {self.pool(names)}, "
        return f"{made}{code.co_name!r}, None, ({self.listed(frame.closure)}))"


def key_of(key):
    """What tells keys apart: the value of a string or number, the identity of another object."""
    return key if type(key) in (str, int) else (id(key),)


def is_work(node: IRNode) -> bool:
    """Whether a node computes something, rather than being part of a `with`."""
    is_context = node.target in ("__enter__", "__exit__") or any(
        u.target == "__enter__" for u in node.users
    )
    return node.op.startswith("call_") and not is_context


def alike(error: BaseException) -> BaseException:
    """An exception with the arguments and attributes of another, made without its __init__."""
    made = BaseException.__new__(type(error), *error.args)
    made.__dict__.update(error.__dict__)
    return made


class END_OF_LOOP:
    """What `next` gives where a loop ends."""


def loop_end(frame: CaptureFrame, target: int) -> int:
    """Where a loop goes on when its iterator is finished and off the stack."""
    ins = frame.code.instructions
    if ins[target].op == "END_FOR":
        return target + 2 if ins[target + 1].op == "POP_TOP" and VERSION >= (3, 13) else target + 1
    return target


def delete_attribute(obj, name: str) -> None:
    """Delete an attribute, if it is there: it may have been set and deleted in one call."""
    if name in getattr(obj, "__dict__", (name,)):
        (type if isinstance(obj, type) else object).__delattr__(obj, name)


def handling(error: BaseException | None, fn, *args, **kwargs):
    """fn(*args) while an exception (or none) is being handled."""
    return native().call_handling(error, fn, args, kwargs)
