"""The primitive cards, by family. Importing this fills the registry."""

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
from glasshouse.ops.built_in import BUILT_IN
