"""Iterators and generators: made, stepped, closed."""

from glasshouse.capture.frame import END, CapturedGenerator, CapturedIterator, SequenceIterator
from glasshouse.capture.plain import own_method
from glasshouse.capture.polyfills import iterate
from glasshouse.capture.values import Break, Recipe, UserError, Var, pending

SEQUENCES = (list, tuple, range, str, bytes)


class IterationRules:
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
            made: CapturedGenerator = this.value

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

    def close_generator(self, made: CapturedGenerator, then):
        """Raise GeneratorExit where a generator stands."""
        if made.finished or not made.started:
            made.finished = True
            return self.give(then, None)
        made.closing = True
        self.enter_generator(made, lambda t, x, result=None: t.give(then, None))
        raise UserError(GeneratorExit())

    def enter_generator(self, made: CapturedGenerator, after) -> None:
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
        if isinstance(value, (CapturedIterator, CapturedGenerator)):
            return self.deliver(then, x)
        if not self.live:
            return self.give(then, self.do(iter, value))
        kind, kept = type(value), None
        if isinstance(value, SEQUENCES) and kind.__iter__ in (x.__iter__ for x in SEQUENCES):
            self.typed(x)
        else:
            if not self.is_tensor(x) and self.call_own(x, "__iter__", [], then):
                return None
            items = self.sequence(x)
            if items is None and not hasattr(kind, "__iter__") and own_method(x, "__getitem__"):
                return self.call_function(Var(iterate), [x], {}, then)
            if items is None:
                raise Break(f"iteration over a {kind.__name__}", Var(iter), [x])
            kept = list(items)
        return self.deliver(then, self.track(Var(SequenceIterator(x, kept), Recipe("iterator"))))

    @pending
    def step(self, iterator: Var, then, sent: Var | None = None):
        """The next item to `then`, or END."""
        value = iterator.value
        if isinstance(value, CapturedGenerator):
            if value.finished:
                return then(self, END)
            self.enter_generator(value, then)
            value.frame.stack.append(sent or Var(None))
            return None
        if isinstance(value, CapturedIterator):
            return then(self, value.step(self))
        if not self.live:
            plain = sent is None or sent.value is None
            try:
                item = self.do(next, value) if plain else self.do(value.send, sent.value)
            except UserError as found:
                if not isinstance(found.error, StopIteration):
                    raise
                return then(self, END, Var(found.error.value))
            return then(self, Var(item))
        frame = self.frames[-1]
        if self.call_own(iterator, "__next__", [], lambda t, v: then(t, v)):
            if self.frames[-1] is not frame:
                self.frames[-1].then = OrElse(StopIteration, then, lambda t: then(t, END))
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


class OrElse:
    """What follows an inlined call, unless it raises an error of a kind: then other(tracer)."""

    def __init__(self, kind: type, then, other):
        self.kind, self.then, self.other = kind, then, other

    def __call__(self, tracer, var):
        return tracer.deliver(self.then, var)
