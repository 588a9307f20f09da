"""The ground floor: dtypes, shapes, trees, flags and errors. Imports nothing of ours."""

from glasshouse.base.dtype import (KIND_ORDER, DType, accumulation_dtype, all_dtypes, as_dtype,
    bfloat16, bool_, by_name, complex64, complex128, default_of_kind, float16, float32, float64,
    from_numpy_dtype, inexact_dtype, int8, int16, int32, int64, promote, promote_scalar, real_dtype,
    uint8, uint16, uint32, uint64)
from glasshouse.base.errors import (BackendError, CheckpointError, DeviceError, DTypeError,
    GradError, IndexOutOfRangeError, LinAlgError, OptionError, OutOfMemoryError, ShapeError,
    TransformError, check_known, check_least, optional, suggest, type_name, user_line)
from glasshouse.base.flags import having
from glasshouse.base.shape import Shape, Spec, broadcast_shapes, check_axes, check_axis, check_shape
from glasshouse.base.tree import broadcast_prefix, flatten, tree_map, unflatten
