"""The primitive cards, by family. Importing this fills the registry."""

from glasshouse.dispatch.primitive import primitives
from glasshouse.ops import (
    cast,
    compare,
    contract,
    create,
    elementwise,
    index,
    linalg,
    movement,
    random,
    reduce,
    sort,
    window,
)

BUILT_IN = frozenset(primitives)  # names of the cards of this package; all others are users'
