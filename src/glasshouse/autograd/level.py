"""A tape of its own for one gh.grad or gh.vjp: a mode whose values wrap the values below."""

from glasshouse.autograd.tape import Leaf, record
from glasshouse.dispatch import Mode, box


class TapeMode(Mode):
    """Records, for its own values, what passes; other tapes and modes below see it as usual."""

    def __init__(self):
        self.records = True

    def constant(self, value):
        """`value` as an untracked value of this level."""
        lifted = box(value, value.spec, None)
        lifted.mode = self
        return lifted

    def leaf(self, value):
        """`value` as a tracked value of this level."""
        lifted = self.constant(value)
        lifted.node = Leaf(lifted)
        return lifted

    def lower(self, value):
        """The value below, if `value` is of this level; else `value` itself."""
        return value.data if value.mode is self else value

    def concrete(self, value):
        """The value below, which has the same contents."""
        return value.data

    def detach(self, value):
        """`value` cut off from this tape and from those below."""
        return self.constant(value.data.detach())

    def process(self, primitive, args, attrs, below):
        if not any(arg.mode is self for arg in args):
            return below(primitive, args, attrs)
        result = below(primitive, tuple([self.lower(arg) for arg in args]), attrs)
        one = primitive.num_outputs == 1
        lifted = self.constant(result) if one else tuple(map(self.constant, result))
        if self.records and primitive.vjp is not None and any(arg.node is not None for arg in args
                                                              if arg.mode is self):  # fmt: skip
            own = [arg if arg.mode is self else self.constant(arg) for arg in args]
            record(primitive, own, attrs, [arg.spec for arg in own], lifted, mode=self)
        return lifted
