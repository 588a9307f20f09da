"""Composed functions: pure compositions of cards, whose calls need not be made anew each time.

What a pure function of tensors and static arguments calls depends on the specs of the tensors, on
the arguments and on what is in force, never on contents. Once such a call was made, it is replayed:
native/replay.c makes the same primitive calls without running the Python between them."""

import functools

from glasshouse.dispatch.hooks import hooks
from glasshouse.dispatch.spelling import takes_names_of_pytorch

composed_functions: dict[str, list] = {}  # all of them as they were written, by their names


def composed(fn=None, *, scalars: bool = False):
    """A decorator for functions of tensors that only call cards and other pure functions: nothing
    is written to, no value read, no random number drawn; calls with what does not fit (arrays,
    lists, tensors of a transform) run as they are. `scalars`: a Python float among the arguments
    becomes a scalar operand as it is, so that another one needs no new calls. Arguments may have
    the names that PyTorch gives them (`dim` for `axis`)."""
    if fn is None:
        return functools.partial(composed, scalars=scalars)
    what = (fn if scalars else takes_names_of_pytorch(fn)), scalars
    composed_functions.setdefault(fn.__name__, []).append(fn)

    @functools.wraps(fn)
    def call(*args, **named):
        return hooks.compose(what, args, named)

    return call


CALL = composed(lambda: None).__code__  # of all composed functions, as stacks have it
composed_functions.clear()
