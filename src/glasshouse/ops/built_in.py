"""Which cards are the library's own; all others are users'."""

from glasshouse.dispatch.primitive import primitives

BUILT_IN = frozenset(primitives)  # names; the front page has imported all families by now
