"""The families of cards, and which cards are the library's own: theirs. All others are users'."""

from glasshouse.dispatch.primitive import primitives
from glasshouse.ops import (
    cast,
    collective,
    compare,
    contract,
    create,
    eigen,
    elementwise,
    fourier,
    index,
    linalg,
    movement,
    random,
    reduce,
    scan,
    sort,
    window,
)

FAMILIES = (
    cast,
    collective,
    compare,
    contract,
    create,
    eigen,
    elementwise,
    fourier,
    index,
    linalg,
    movement,
    random,
    reduce,
    scan,
    sort,
    window,
)
BUILT_IN = frozenset(primitives)  # names; the families are imported by now
