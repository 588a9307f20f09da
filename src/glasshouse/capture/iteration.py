"""Iterators and generators: made, stepped, closed."""

import types

from glasshouse.capture.frame import END, Enumerate, Generator, Iterator, Over, Zip
from glasshouse.capture.polyfills import iterate
from glasshouse.capture.values import MISSING, Break, Made, UserError, Var, pending, static_lookup


class Iteration:
    """The part of the tracer that iterates."""

    def generator_method(self, this: Var, name: str, args, then):
        """A method of a generator that the interpreter runs."""
        if name in ("__next__", "send"):
            return self.next_of(this, None, then, args[0] if args else Var(None))
        if name == "__iter__":
            return self.deliver(then, this)
        if name == "throw":
            error = args[0] if len(args) == 1 or args[1].value is None else args[1]
            if isinstance(error.value, type):
                error = Var(error.value())
            made: Generator = this.value

            def after(tracer, x, result=None):
                if x is END:
                    tracer.fail(StopIteration())
                return tracer.deliver(then, x)

            self.enter_generator(made, after)
            self.raised = error
            raise UserError(error.value)
        if name == "close":
            return self.close_generator(this.value, then)
        raise Break(f"method {name} of a generator", None)

    def close_generator(self, made: Generator, then):
        """Raise GeneratorExit where a generator stands."""
        if made.finished or not made.started:
            made.finished = True
            return self.give(then, None)
        made.closing = True
        self.enter_generator(made, lambda t, x: t.give(then, None))
        raise UserError(GeneratorExit())

    def enter_generator(self, made: Generator, after) -> None:
        """Run a generator's frame until it yields or ends."""
        if made.running:
            self.fail(ValueError("generator already executing"))
        made.running = made.started = True
        made.then = after
        self.frames.append(made.frame)

    @pending
    def get_iter(self, x: Var, then=None):
        """iter(x)."""
        value = x.value
        if isinstance(value, (Over, Zip, Enumerate, Generator)):
            return self.deliver(then, x)
        if not self.live:
            return self.give(then, self.do(iter, value))
        if self.is_tensor(x):
            return self.deliver(
                then, self.track(Var(Over(x, self.front.unbind(self, x)), Made("iterator")))
            )
        kind = type(value)
        if isinstance(value, (list, tuple, range, str, bytes)) and self.sequence_kind(kind):
            self.typed(x)
            return self.deliver(then, self.track(Var(Over(x), Made("iterator"))))
        method, _ = static_lookup(kind, "__iter__")
        if isinstance(method, types.FunctionType):
            self.typed(x)
            return self.call(Var(method), [x], {}, then)
        items = self.sequence(x)
        if items is not None:
            return self.deliver(then, self.track(Var(Over(x, list(items)), Made("iterator"))))
        if method is MISSING and isinstance(
            static_lookup(kind, "__getitem__")[0], types.FunctionType
        ):
            return self.call_function(Var(iterate), [x], {}, then)
        raise Break(f"iteration over a {kind.__name__}", Var(iter), [x])

    def sequence_kind(self, kind) -> bool:
        return kind.__iter__ in (
            list.__iter__,
            tuple.__iter__,
            range.__iter__,
            str.__iter__,
            bytes.__iter__,
        )

    @pending
    def step(self, iterator: Var, then, sent: Var | None = None):
        """The next item to `then`, or END."""
        value = iterator.value
        if isinstance(value, Generator):
            if value.finished:
                return then(self, END)
            self.enter_generator(value, then)
            value.frame.stack.append(sent or Var(None))
            return None
        if isinstance(value, (Over, Zip, Enumerate)):
            return then(self, value.step(self))
        if not self.live:
            plain = sent is None or sent.value is None
            try:
                item = self.do(next, value) if plain else self.do(value.send, sent.value)
            except UserError as found:
                if not isinstance(found.error, StopIteration):
                    raise
                result = [Var(found.error.value)] if takes_result(then) else []
                return then(self, END, *result)
            return then(self, Var(item))
        method, _ = static_lookup(type(value), "__next__")
        if isinstance(method, types.FunctionType):
            frame = self.frames[-1]
            self.typed(iterator)
            self.call(Var(method), [iterator], {}, lambda t, v: then(t, v))
            if self.frames[-1] is not frame:
                self.frames[-1].then = NextThen(then)
            return None
        raise Break(f"iteration over a {type(value).__name__}", Var(next), [iterator])

    @pending
    def next_of(self, iterator: Var, default: Var | None, then, sent=None):
        """next(iterator[, default])."""

        def after(tracer, x, result=None):
            if x is not END:
                return tracer.deliver(then, x)
            if default is not None:
                return tracer.deliver(then, default)
            return tracer.fail(StopIteration() if result is None else StopIteration(result.value))

        return self.step(iterator, after, sent)


def plain_value(var: Var):
    return var.value.native() if isinstance(var.value, (Iterator, Generator)) else var.value


def takes_result(then) -> bool:
    return getattr(then, "__code__", None) is not None and then.__code__.co_argcount >= 3


class NextThen:
    """What follows an inlined __next__: its StopIteration ends the loop."""

    def __init__(self, then):
        self.then = then

    def __call__(self, tracer, var):
        return self.then(tracer, var)
