"""The primitive cards, by family. Importing this fills the registry."""

from glasshouse.ops import (
    cast,
    collective,
    compare,
    contract,
    create,
    custom,
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
from glasshouse.ops.built_in import BUILT_IN
