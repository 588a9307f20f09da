"""Layers that wait for their first input: its size need not be given."""

import inspect
from typing import Any, Self

from glasshouse.autograd import no_grad
from glasshouse.base.dtype import DTypeLike
from glasshouse.base.errors import ShapeError
from glasshouse.dispatch.value import as_value
from glasshouse.nn import conv, norm
from glasshouse.nn.linear import Linear
from glasshouse.nn.module import Module, ModuleBuffer, Parameter
from glasshouse.nn.uninitialized import Uninitialized
from glasshouse.tensor import Tensor, empty, random

__all__ = ["LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d",
           "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d",
           "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d", "LazyLinear",
           "UninitializedBuffer", "UninitializedParameter"]  # fmt: skip


class UninitializedParameter(Uninitialized, Parameter):
    """A Parameter that has no shape until `materialize(shape)` gives it one.

    Example:
        >>> weight = UninitializedParameter()
        >>> weight.materialize((2, 3))
        >>> weight.shape, type(weight).__name__
        ((2, 3), 'Parameter')
    """

    becomes = Parameter

    def __new__(
        cls, requires_grad: bool = True, device: str | None = None, dtype: DTypeLike | None = None
    ) -> Self:
        return Parameter.__new__(cls, empty((0,), dtype=dtype, device=device), requires_grad)


class UninitializedBuffer(Uninitialized, ModuleBuffer):
    """A buffer that has no shape until `materialize(shape)` gives it one."""

    becomes = ModuleBuffer

    def __new__(
        cls,
        requires_grad: bool = False,
        device: str | None = None,
        dtype: DTypeLike | None = None,
        persistent: bool = True,
    ) -> Self:
        contents = empty((0,), dtype=dtype, device=device)
        return ModuleBuffer.__new__(cls, contents, persistent=persistent)


class LazyLayer(Module):
    """Base of lazy layers: the first call reads the input's size, draws initial values and turns
    the module into a `becomes`."""

    becomes: type[Any] = Module
    size_name = ""  # the attribute and first argument of `becomes` that the input gives

    def __init__(self, *args: Any, **named: Any) -> None:
        options = self.bound(args, named)
        generator = random.default_generator()
        before = generator.state()
        # One feature, or as many as there are groups, fits any options: those are what is kept.
        template = self.becomes(options.get("groups", 1), **options)
        generator.set_state(before)
        self.__dict__.update(template.__dict__)
        self.__dict__["layer_options"] = options
        setattr(self, self.size_name, 0)
        kinds = (UninitializedParameter, UninitializedBuffer)
        for members, kind in zip((self._parameters, self._buffers), kinds, strict=True):
            for name, x in members.items():
                if x is not None and x.ndim:
                    members[name] = kind(device=x.device, dtype=x.dtype)

    @classmethod
    def bound(cls, args: tuple[float, ...], named: dict[str, Any]) -> dict[Any, Any]:
        """The arguments of `becomes` but for its first one, by name."""
        try:
            arguments = inspect.signature(cls).bind(*args, **named)
        except TypeError as error:
            raise TypeError(f"{cls.__name__}: {error}") from None
        arguments.apply_defaults()
        return arguments.arguments

    def has_uninitialized_params(self) -> bool:
        """Whether there are tensors without a shape."""
        members = (*self._parameters.values(), *self._buffers.values())
        return any(isinstance(x, Uninitialized) for x in members)

    def initialize_parameters(self, input: Tensor) -> None:
        """Take the size of `input`, and give the tensors that have no shape theirs."""
        size = self.size_of(as_value(input, where=type(self).__name__))
        setattr(self, self.size_name, size)
        if not self.has_uninitialized_params():
            return
        fresh = self.becomes(size, **self.layer_options)
        values = fresh._parameters | fresh._buffers
        with no_grad():
            for name, x in (self._parameters | self._buffers).items():
                if isinstance(x, Uninitialized):
                    x.copy_(cast_like(values[name], x))

    def size_of(self, x: Tensor) -> int:
        axis = -1 if self.becomes is Linear else self.channel_axis()
        if not -x.ndim <= axis < x.ndim:
            expected = f"an input with features on axis {axis}"
            raise ShapeError(type(self).__name__, expected, x.shape, "Add the missing axes.")
        return x.shape[axis]

    def channel_axis(self) -> int:
        return 1 if issubclass(self.becomes, norm.BatchNorm) else -1 - self.n

    def forward(self, *args: Tensor, **named: Any) -> Tensor:
        self.initialize_parameters(*args[:1], **{n: x for n, x in named.items() if n == "input"})
        self.__dict__.pop("layer_options")
        self.__class__ = self.becomes
        return self.forward(*args, **named)


def cast_like(value: Tensor, x: Tensor) -> Tensor:
    """`value` in the dtype of x, which may have been converted meanwhile."""
    return value.detach().to(x.dtype)


def lazy(name: str, becomes: type[Any], size_name: str, **changed: Any) -> type[Any]:
    """The class `name` of layers that become `becomes`; `changed` are defaults that differ."""
    # Before Python 3.11.4 the class's own signature is that of Module's __new__.
    _, _, *parameters = inspect.signature(becomes.__init__).parameters.values()
    parameters = [p.replace(default=changed.get(p.name, p.default)) for p in parameters]
    about = f"""`nn.{becomes.__name__}` whose {size_name} is that of the first input.

    Shapes: as `nn.{becomes.__name__}`.
    Raises: ShapeError for an input without such an axis.
    Source: standard.
    """
    members = {
        "__doc__": about,
        "__module__": "glasshouse.nn",
        "__signature__": inspect.Signature(parameters),
        "becomes": becomes,
        "size_name": size_name,
    }
    return type(
        LazyLayer.__name__.replace("Layer", becomes.__name__), (LazyLayer, becomes), members
    )


LazyLinear: type[Any] = lazy("LazyLinear", Linear, "in_features")
LazyConv1d: type[Any] = lazy("LazyConv1d", conv.Conv1d, "in_channels")
LazyConv2d: type[Any] = lazy("LazyConv2d", conv.Conv2d, "in_channels")
LazyConv3d: type[Any] = lazy("LazyConv3d", conv.Conv3d, "in_channels")
LazyConvTranspose1d: type[Any] = lazy("LazyConvTranspose1d", conv.ConvTranspose1d, "in_channels")
LazyConvTranspose2d: type[Any] = lazy("LazyConvTranspose2d", conv.ConvTranspose2d, "in_channels")
LazyConvTranspose3d: type[Any] = lazy("LazyConvTranspose3d", conv.ConvTranspose3d, "in_channels")
LazyBatchNorm1d: type[Any] = lazy("LazyBatchNorm1d", norm.BatchNorm1d, "num_features")
LazyBatchNorm2d: type[Any] = lazy("LazyBatchNorm2d", norm.BatchNorm2d, "num_features")
LazyBatchNorm3d: type[Any] = lazy("LazyBatchNorm3d", norm.BatchNorm3d, "num_features")

changed: dict[str, bool] = {"affine": True, "track_running_stats": True}  # as in PyTorch
LazyInstanceNorm1d: type[Any] = lazy(
    "LazyInstanceNorm1d", norm.InstanceNorm1d, "num_features", **changed
)
LazyInstanceNorm2d: type[Any] = lazy(
    "LazyInstanceNorm2d", norm.InstanceNorm2d, "num_features", **changed
)
LazyInstanceNorm3d: type[Any] = lazy(
    "LazyInstanceNorm3d", norm.InstanceNorm3d, "num_features", **changed
)
