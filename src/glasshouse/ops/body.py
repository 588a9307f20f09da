"""Bodies: pure functions of values, written down as calls of cards.

A card with a function among its attrs, such as `scan`, has it as a `Body`: the specs of its inputs,
calls of cards on earlier values, and which values are its results. Equal bodies are one object, so
a call that has one is found again like any other. `BodyTracer` makes bodies: a level whose values
stand for unknown ones. Values that a function closes over become inputs of its body."""

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

from glasshouse.base import Spec, TransformError, having, uint32
from glasshouse.dispatch import Level, bind, box, broadcast_to, primitives, state
from glasshouse.dispatch.call import (
    Call,
    PseudoPrimitive,
    call_of,
    is_static_source,
    pseudo_primitives,
)
from glasshouse.ops.compare import where
from glasshouse.ops.create import iota

KEY_FACTOR = 0x9E3779B1  # of the steps of an outer loop, the golden ratio of 32 bits
KEPT_INSIDE = ("expand", "permute")  # moves that cost nothing where they are used
DETACH = PseudoPrimitive("detach", lambda x: x)  # the value, through which no derivative goes
pseudo_primitives["detach"] = DETACH


class Body:
    """`inputs`: specs. `calls`: (call, positions of its operands). `outputs`: positions. Positions
    count the inputs, then each result of each call. `recomputed`: numbers of the calls that
    recompute earlier values."""

    __slots__ = ("inputs", "calls", "outputs", "recomputed", "__weakref__")
    bodies: WeakValueDictionary[tuple[Any, ...], "Body"] = WeakValueDictionary()

    def __init__(
        self,
        inputs: tuple[Any, ...],
        calls: tuple[Any, ...],
        outputs: tuple[Any, ...],
        recomputed: tuple[Any, ...],
    ) -> None:
        self.inputs: tuple[Any, ...] = inputs
        self.calls: tuple[Any, ...] = calls
        self.outputs: tuple[Any, ...] = outputs
        self.recomputed: tuple[Any, ...] = recomputed

    @classmethod
    def of(
        cls,
        inputs: tuple[Any, ...],
        calls: tuple[Any, ...],
        outputs: tuple[Any, ...],
        recomputed: tuple[Any, ...] = (),
    ) -> "Body":
        """The one body of these parts."""
        key = (inputs, calls, outputs, recomputed)
        body = cls.bodies.get(key)
        return cls.bodies.setdefault(key, cls(*key)) if body is None else body

    def __reduce__(self) -> Any:
        return Body.of, (self.inputs, self.calls, self.outputs, self.recomputed)

    def specs(self) -> list[Spec]:
        """Specs of every value, by position."""
        return [*self.inputs, *(spec for call, _ in self.calls for spec in call.outs)]

    def out_specs(self) -> list[Spec]:
        """Specs of the results."""
        specs = self.specs()
        return [specs[at] for at in self.outputs]

    def values(self, inputs: Any) -> list[Any]:
        """Every value by position, for these inputs."""
        values = list(inputs)
        for call, places in self.calls:
            operands = [values[at] for at in places]
            if call.primitive is DETACH:
                values.append(operands[0].detach())
                continue
            result = bind(call.primitive, tuple(operands), call.attrs)
            values.extend(result if call.primitive.num_outputs != 1 else (result,))
        return values

    def apply(self, *inputs: Any) -> list[Any]:
        """The results for these inputs."""
        values = self.values(inputs)
        return [values[at] for at in self.outputs]

    def compute(self, arrays: Any) -> list[Any]:
        """The results for arrays, by the cards' references."""
        values = list(arrays)
        for call, places in self.calls:
            result = call.compute(*[values[at] for at in places])
            values.extend(result if call.primitive.num_outputs != 1 else (result,))
        return [values[at] for at in self.outputs]

    def computed_by(self, functions: dict[str, Any]) -> "Body":
        """The same with users' functions in place of the references of cards, by their names."""
        calls = tuple(
            (
                call_of(call.primitive, call.specs, call.attrs, call.out, functions.get(call.name)),
                at,
            )
            for call, at in self.calls
        )
        return Body.of(self.inputs, calls, self.outputs, self.recomputed)

    def __str__(self) -> str:
        lines = [f"body of {', '.join(f'v{i}: {s}' for i, s in enumerate(self.inputs))}"]
        at = len(self.inputs)
        for call, places in self.calls:
            names = ", ".join(f"v{at + i}" for i in range(len(call.outs)))
            operands = ", ".join(f"v{i}" for i in places)
            lines.append(f"  {names} = {call.name}({operands}) {call.attrs or ''}".rstrip())
            at += len(call.outs)
        return "\n".join([*lines, f"  return {', '.join(f'v{i}' for i in self.outputs)}"])


class TracedCall:
    """A call of a trace: the numbers of its operands and of its results, since there are no values
    yet; whether it recomputes earlier values."""

    __slots__ = ("call", "operands", "results", "is_again")

    def __init__(self, call: Call, operands: tuple[int, ...], results: tuple[int, ...]) -> None:
        self.call: Call = call
        self.operands: tuple[int, ...] = operands
        self.results: tuple[int, ...] = results
        self.is_again: bool = state.phase == "recompute"


class BodyTracer(Level):
    """A level whose values are numbers; it records the calls on them. `captured` are the outside
    values that the calls read, by number. Calls on those alone run outside, once."""

    writes_scalars: bool

    hides = True

    def __init__(
        self, is_closed: bool = False, hoists: bool = True, writes_scalars: bool = False
    ) -> None:
        self.is_closed = is_closed  # whether only cards are called, of this level's values
        self.writes_scalars = is_closed or writes_scalars  # writes down, and does not capture them
        self.hoists = hoists  # whether calls on captured values alone are made outside
        self.specs: list[Spec] = []  # by number
        self.calls: list[TracedCall] = []
        self.maker: dict[int, TracedCall] = {}  # by the number of a result
        self.by_key: dict[tuple[Any, ...], TracedCall] = {}
        self.captured: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}  # of captured values, by identity
        self.step: int | None = None  # of the number of the step, where random numbers are drawn

    def number(self, spec: Spec) -> int:
        self.specs.append(spec)
        return len(self.specs) - 1

    def value(self, number: int) -> Any:
        """The value of a number."""
        value = box(number, self.specs[number], None)
        value.mode = self
        return value

    def input(self, spec: Spec) -> Any:
        """A value that is given later."""
        return self.value(self.number(spec))

    def number_of(self, value: Any) -> int:
        """The number of a value of this level, or one from outside."""
        if value.mode is self:
            return value.payload
        number = self.numbers.get(id(value))
        if number is None:
            number = self.numbers[id(value)] = self.number(value.spec)
            self.captured[number] = value
        return number

    def constant(self, value: Any) -> Any:
        return self.value(self.number_of(value))

    def lower(self, value: Any) -> Any:
        return value

    def detach(self, value: Any) -> Any:
        return self.emit(DETACH, (value,), {})

    def concrete(self, value: Any) -> Any:
        raise TransformError(
            "scan",
            f"no need for the contents of {value.spec}, which are not known while its step is read",
            "a request for them (bool(), .item(), .numpy(), a mask as index …)",
            "Use gh.where instead of `if`, or take this part out of the step.",
        )

    def process(self, primitive: Any, args: Any, attrs: dict[str, Any], below: Any) -> Any:
        name = primitive.name
        if name == "constant":
            return below(primitive, args, attrs)
        if name == "full" and not (self.writes_scalars or is_static_source(primitive, attrs)):
            scalar = below(primitive, args, {**attrs, "shape": ()})
            return self.expanded(scalar, attrs["shape"])
        is_own = any(arg.mode is self for arg in args)
        if name == "random_bits" and not is_own and not self.is_closed and is_looped(state.modes):
            return self.emit(primitive, (self.key_of_step(args[0]),), attrs)
        if not is_own and args and self.hoists and name not in KEPT_INSIDE:
            return below(primitive, args, attrs)
        return self.emit(primitive, args, attrs)

    def key_of_step(self, key: Any) -> Any:
        """A key for one step of a loop, within loops around it: its last word counts the steps."""
        for mode in state.modes:
            if isinstance(mode, BodyTracer):
                key = mode.own_key(key)
        return self.own_key(key)

    def own_key(self, key: Any) -> Any:
        if self.step is None:
            self.step = self.number(Spec((), uint32))
        with self:
            words = iota(size=4, dtype=uint32)
            step = broadcast_to(self.value(self.step), (4,)) + 1
            return where(words == 3, key * KEY_FACTOR + step, key)

    def expanded(self, x: Any, shape: Any) -> Any:
        """A captured scalar in a shape."""
        if not shape:
            return self.constant(x)
        x = self.emit(primitives["reshape"], (x,), {"shape": (1,) * len(shape)})
        return self.emit(primitives["expand"], (x,), {"shape": tuple(shape)})

    def emit(self, primitive: Any, args: Any, attrs: dict[str, Any], out: Any = None) -> Any:
        """The result(s) of a call, which is written down; an equal call is the earlier one. `out`
        is the spec of a result that no card infers."""
        operands = tuple(self.number_of(arg) for arg in args)
        specs = [self.specs[i] for i in operands]
        out = specs[0] if primitive is DETACH else out
        call = call_of(primitive, specs, attrs, out)
        key = (call, operands)
        traced = self.by_key.get(key)
        if traced is None:
            results = tuple(self.number(spec) for spec in call.outs)
            traced = self.by_key[key] = TracedCall(call, operands, results)
            self.calls.append(traced)
            self.maker.update(dict.fromkeys(results, traced))
        values = [self.value(number) for number in traced.results]
        return values[0] if call.primitive.num_outputs == 1 else tuple(values)

    def body(self, inputs: Sequence[int], outputs: Sequence[int]) -> Body:
        """The Body that computes `outputs` from `inputs`, without calls that neither needs."""
        needed = self.needed(outputs, inputs) - set(inputs)
        calls = [traced for traced in self.calls if not needed.isdisjoint(traced.results)]
        position = {number: i for i, number in enumerate(inputs)}
        body_calls, at = [], len(inputs)
        for traced in calls:
            body_calls.append((traced.call, tuple(position[i] for i in traced.operands)))
            for number in traced.results:
                position.setdefault(number, at)
                at += 1
        results = tuple(position[i] for i in outputs)
        recomputed = tuple(i for i, traced in enumerate(calls) if traced.is_again)
        return Body.of(tuple(self.specs[i] for i in inputs), tuple(body_calls), results, recomputed)

    def needed(self, outputs: Sequence[int], inputs: Sequence[int] = ()) -> set[int]:
        """The numbers that `outputs` need, without following `inputs`."""
        needed, ends = set(outputs), set(inputs)
        for traced in reversed(self.calls):
            if not needed.difference(ends).isdisjoint(traced.results):
                needed.update(traced.operands)
        return needed

    def roots(self, outputs: Sequence[int], inputs: Sequence[int] = ()) -> list[int]:
        """The inputs, captured ones included, that `outputs` need, but for `inputs`."""
        needed = self.needed(outputs, inputs)
        return sorted(i for i in needed if i not in self.maker and i not in inputs)


def is_looped(modes: Any) -> bool:
    """Whether all levels that hide contents are loops: vmap has its own rules."""
    hiding = [mode for mode in modes if isinstance(mode, Level) and mode.hides]
    return all(isinstance(mode, BodyTracer) for mode in hiding)


def traced(
    fn: Callable[..., Any],
    specs: Sequence[Spec],
    is_closed: bool = False,
    *,
    hoists: bool = True,
    writes_scalars: bool = False,
) -> Any:
    """(tracer, values that stand for inputs of these specs, the results of `fn` for them). Modes
    that only change which cards are called, such as autocast, stay in force inside; none do if
    `is_closed`, since then `fn` calls cards."""
    tracer = BodyTracer(is_closed, hoists, writes_scalars)
    inputs = [tracer.input(spec) for spec in specs]
    ways = tuple(mode for mode in state.modes if mode.key is not None and not is_closed)
    others = tuple(mode for mode in state.modes if mode.key is None and not is_closed)
    with having(state, modes=(*others, tracer, *ways)):
        return tracer, inputs, fn(*inputs)
