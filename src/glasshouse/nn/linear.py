"""Linear, Embedding, and layers that change the shape: Identity, Flatten, Unflatten."""

import math
from typing import Any

from glasshouse.autograd import no_grad
from glasshouse.base import ShapeError, check_axis
from glasshouse.base.dtype import DTypeLike
from glasshouse.dispatch.value import ArrayLike, as_value, reshape
from glasshouse.nn import init
from glasshouse.nn.checks import check_positive, refuse_sparse
from glasshouse.nn.functional.linear import bilinear, check_padding_idx, embedding, linear
from glasshouse.nn.layer import with_unusual
from glasshouse.nn.module import Module, Parameter
from glasshouse.tensor import Tensor, empty, flatten, matrix_transpose


def add_parameters(
    module: Module, device: str | None, dtype: DTypeLike | None, **shapes: Any
) -> None:
    """Register a Parameter of each shape, to be initialised; None where there is no shape."""
    for name, shape in shapes.items():
        parameter = None if shape is None else Parameter(empty(shape, dtype=dtype, device=device))
        module.register_parameter(name, parameter)


class Identity(Module):
    """Returns its input; takes and ignores any arguments."""

    def __init__(self, *args: int, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(Module):
    """x Wᵀ + b, with W and b initially uniform in ±1/√in_features.

    Shapes: (..., in_features) -> (..., out_features); weight (out_features, in_features).
    Raises: ShapeError for another number of features, DTypeError for another dtype.
    Source: standard; LeCun et al. 1998 (initial values).
    """

    _shown = ("in_features", "out_features", "bias")

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        check_positive("Linear", in_features=in_features, out_features=out_features)
        self.in_features = in_features
        self.out_features = out_features
        shapes = {"weight": (out_features, in_features), "bias": (out_features,) if bias else None}
        add_parameters(self, device, dtype, **shapes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the initial values again."""
        reset_uniform(self, self.in_features)

    def forward(self, input: Any) -> Tensor:
        return linear(input, self.weight, self.bias, _where="Linear")


class TransposedLinear(Module):
    """x W + b: a Linear whose weight is stored as (in, out), as GPT-2's is.

    Shapes: (..., in_features) -> (..., out_features); weight (in_features, out_features).
    Raises: ShapeError for another number of features, DTypeError for another dtype.
    Source: standard.
    Example:
        >>> TransposedLinear(2, 3).weight.shape
        (2, 3)
    """

    _shown = ("in_features", "out_features", "bias")

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        sizes = {"in_features": in_features, "out_features": out_features}
        check_positive("TransposedLinear", **sizes)
        self.in_features = in_features
        self.out_features = out_features
        shapes = {"weight": (in_features, out_features), "bias": (out_features,) if bias else None}
        add_parameters(self, device, dtype, **shapes)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the initial values again."""
        reset_uniform(self, self.in_features)

    def forward(self, input: Any) -> Tensor:
        weight = matrix_transpose(self.weight)
        return linear(input, weight, self.bias, _where="TransposedLinear")


class Bilinear(Module):
    """x₁ᵀ Wₖ x₂ + bₖ, with W and b initially uniform in ±1/√in1_features.

    Shapes: (..., in1_features) and (..., in2_features) -> (..., out_features).
    Raises: ShapeError for other sizes, DTypeError for another dtype.
    Source: standard.
    """

    _shown = ("in1_features", "in2_features", "out_features", "bias")

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        sizes = {"in1_features": in1_features, "in2_features": in2_features}
        check_positive("Bilinear", **sizes, out_features=out_features)
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        weight = (out_features, in1_features, in2_features)
        add_parameters(self, device, dtype, weight=weight, bias=(out_features,) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the initial values again."""
        reset_uniform(self, self.in1_features)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return bilinear(input1, input2, self.weight, self.bias)


def reset_uniform(module: Module, fan_in: int) -> None:
    """Weight and bias uniform in ±1/√fan_in: kaiming_uniform_ with a = √5."""
    bound = 1 / math.sqrt(max(fan_in, 1))
    init.uniform_(module.weight, -bound, bound)
    if module.bias is not None:
        init.uniform_(module.bias, -bound, bound)


class Flatten(Module):
    """The axes from start_dim to end_dim merged into one.

    Shapes: (N, *S) -> (N, prod(S))
    """

    _shown = ("start_dim", "end_dim")

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        return flatten(input, self.start_dim, self.end_dim)


class Unflatten(Module):
    """The axis `dim` split into axes of the given sizes.

    Shapes: (N, prod(S)) -> (N, *S)
    """

    _shown = ("dim", "unflattened_size")

    def __init__(self, dim: int, unflattened_size: tuple[int, ...]) -> None:
        super().__init__()
        self.dim = dim
        self.unflattened_size: tuple[int, ...] = tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        x = as_value(input, where="Unflatten")
        axis = check_axis("Unflatten", self.dim, x.ndim)
        sizes = self.unflattened_size
        if math.prod(sizes) != x.shape[axis]:
            expected = f"axis {axis} of {math.prod(sizes)} elements"
            raise ShapeError("Unflatten", expected, x.shape, f"Change unflattened_size {sizes}.")
        return reshape(x, x.shape[:axis] + sizes + x.shape[axis + 1 :])


class Embedding(Module):
    """The rows of a table, initially normal, that the indices name; see `functional.embedding`. Row
    padding_idx starts as 0 and gets no gradient.

    Shapes: (...) of integers in [0, num_embeddings) -> (..., embedding_dim).
    Raises: IndexOutOfRangeError for an index outside the table, DTypeError for floats.
    Source: Bengio et al. 2003.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        super().__init__()
        refuse_sparse("Embedding", sparse)
        check_positive("Embedding", num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx: int | None = check_padding_idx("Embedding", padding_idx, num_embeddings)
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        if _weight is None:
            add_parameters(self, device, dtype, weight=(num_embeddings, embedding_dim))
            self.reset_parameters()
        else:
            self.weight: Parameter = Parameter(_weight)
        self.weight.requires_grad_(not _freeze)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: ArrayLike,
        freeze: bool = True,
        padding_idx: Any = None,
        max_norm: Any = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Module:
        """An Embedding whose table is `embeddings` (V, D), not trained if `freeze`."""
        table = as_value(embeddings, where="Embedding.from_pretrained")
        if table.ndim != 2:
            raise ShapeError("Embedding.from_pretrained", "a table (V, D)", table.shape, "Reshape.")
        options = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        rows, size = table.shape
        return cls(rows, size, *options, _weight=table, _freeze=freeze)

    def reset_parameters(self) -> None:
        """Draw the initial values again."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0.0

    def forward(self, input: Tensor) -> Tensor:
        options = (self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq)
        return embedding(input, self.weight, *options, _where="Embedding")

    def extra_repr(self) -> str:
        shown = f"{self.num_embeddings}, {self.embedding_dim}"
        defaults = {"padding_idx": None, "max_norm": None, "norm_type": 2}
        return with_unusual(shown, vars(self), {**defaults, "scale_grad_by_freq": False})
