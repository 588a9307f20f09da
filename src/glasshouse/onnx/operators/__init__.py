"""The operators, by family; importing this package fills the table."""

from glasshouse.onnx.operators import (
    attention,
    control,
    elementwise,
    images,
    learning,
    norms,
    products,
    quantised,
    random,
    recurrent,
    reductions,
    shapes,
    signals,
    windows,
)
