"""The ground floor: dtypes, shapes, trees, flags and errors. Imports nothing of ours."""

from glasshouse.base.dtype import *
from glasshouse.base.dtype import (
    KIND_ORDER,
    accumulation_dtype,
    scan_dtype,
    all_dtypes,
    as_dtype,
    bool_,
    by_name,
    default_of_kind,
    from_numpy_dtype,
    inexact_dtype,
    promote,
    promote_scalar,
    real_dtype,
)
from glasshouse.base.errors import *
from glasshouse.base.errors import check_known, check_least, optional, suggest, type_name, user_line
from glasshouse.base.flags import having
from glasshouse.base.shape import Shape, Spec, broadcast_shapes, check_axes, check_axis, check_shape
from glasshouse.base.tree import broadcast_prefix, flatten, tree_map, unflatten
