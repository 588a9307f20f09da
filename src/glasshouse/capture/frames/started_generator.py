"""Python's own generators for what is left of those that the interpreter began (`made`)."""

from functools import partial


class StartedGenerator:
    """The rest of a generator that the interpreter began, as the operand of a `yield from`."""

    def __init__(self, made, step):
        self.made, self.step = made, step
        self.send, self.throw = made.send, made.throw

    def __iter__(self):
        return self

    def close(self):
        if self.made.rest() is not None:  # else Python's own was let go of, and others may go on
            return self.made.close()
        return None

    def __next__(self):
        step, self.step = self.step, self.made.__next__
        try:
            return step()
        finally:
            del step  # it may hold what is raised, whose traceback has this frame


def going_on(made):
    """A generator of what is left of one that the interpreter began; it stands at a `yield`."""
    try:
        sent = yield
    except BaseException as error:
        if isinstance(error, GeneratorExit) and made.rest() is None:
            raise  # nobody has closed this one: it was let go of, and `made` may go on
        rest = StartedGenerator(made, partial(made.throw, error))
    else:
        rest = StartedGenerator(made, partial(made.send, sent))
    return (yield from rest)


def caught_here():
    """A generator that gives what is thrown into it."""
    try:
        yield
    except BaseException as error:
        yield error


def error_thrown(*args):
    """The exception that `throw` raises with these arguments."""
    catcher = caught_here()
    next(catcher)
    try:
        return catcher.throw(*args)
    finally:
        next(catcher, None)  # to its end, where letting go of it throws nothing into it
