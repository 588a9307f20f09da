"""Tensor: a handle on a value, with gradients, conversion to the outside, and in-place writing.

Values never change and never alias. Writing (`x[i] = v`, `x += y`) binds the handle to a new value;
tensors computed from the old one keep it."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from glasshouse.autograd.backward import backward, told_early
from glasshouse.autograd.tape import AFTERWARDS, Leaf
from glasshouse.base import OptionError, ShapeError, TransformError
from glasshouse.base.device import device
from glasshouse.base.dtype import DTypeLike, as_dtype
from glasshouse.base.errors import DeviceError, DTypeError, GradError, HiddenValueError
from glasshouse.base.shape import Shape, Spec, check_axis
from glasshouse.dispatch import Value, as_value, broadcast_to, cast, primitives, unshared
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch.bind import bind, box, state
from glasshouse.dispatch.hooks import hooks
from glasshouse.dispatch.value import ArrayLike, ordinary
from glasshouse.tensor import printing
from glasshouse.tensor.destination import named_targets, value_of
from glasshouse.tensor.parts import TensorView, link, linked, write_back
from glasshouse.tensor.standard import contract, index, manipulate

if TYPE_CHECKING:
    from glasshouse.tensor.attached import AttachedMethods
else:
    AttachedMethods = Value  # methods.py adds the methods that attached.pyi has types of


def check_visible() -> None:
    if state.values_hidden:
        fix = "Return the tensor."
        raise HiddenValueError("value", "no look at a tensor's value", "one while tracing", fix)


def converted(kind: type[Any]) -> Any:
    return lambda self: kind(self.one(kind.__name__))


class ElementCount(int):
    """The number of elements; called, as PyTorch's `size`, the shape, or the size of one axis.

    Example:
        >>> x = Tensor([[1.0, 2.0]])
        >>> x.size, x.size(), x.size(1)
        (2, (1, 2), 2)
    """

    shape: Shape

    def __call__(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[check_axis("size", dim, len(self.shape))]

    def __reduce__(self) -> tuple[type[Any], tuple[int, ...]]:
        return int, (int(self),)


@functools.cache
def element_count(shape: Shape) -> ElementCount:
    count = ElementCount(math.prod(shape))
    count.shape = shape
    return count


class Tensor(AttachedMethods):
    """An n-dimensional array of one dtype, on one backend.
    Made by gh.asarray, gh.tensor, gh.zeros … `Tensor(data)` is float32 as in PyTorch, and
    `Tensor(2, 3)` of those sizes; with a dtype it is gh.asarray.

    Example:
        >>> Tensor([[1, 2]])
        Tensor([[1., 2.]], dtype=float32)
    """

    payload: Any
    spec: Spec
    backend: Any
    mode: Any
    tape_entry: Any
    slot: int
    grad: Any = None
    cut_from: Any = None  # the tensor it is a part of, and where: parts.py
    sharding: Any = None  # how ranks share it out; None: each has the whole

    def __new__(cls, *data: Any, dtype: Any = None) -> Self:
        value = value_of(data, dtype)
        tensor = object.__new__(cls)
        tensor.rebind(value.detach() if data and isinstance(data[0], Tensor) else value)
        return tensor

    # -- properties ------------------------------------------------------------------------
    @property
    def device(self) -> device:
        """Where the payload lies: "cpu", "cuda" …"""
        return device(ordinary(self).backend.device)

    @property
    def size(self) -> ElementCount:
        """The number of elements; x.size(i) is the size of an axis, x.size() the shape."""
        return element_count(self.spec.shape)

    @property
    def T(self) -> "Tensor":
        """A matrix with its axes swapped.

        Raises: ShapeError unless it has two axes.
        """
        if self.ndim != 2:
            raise ShapeError("T", "a matrix (2 axes)", f"shape {self.shape}", "Use .mT.")
        return link(self, TensorView("T"), bind(primitives["permute"], (self,), {"axes": (1, 0)}))

    @property
    def mT(self) -> "Tensor":
        """The last two axes swapped.

        Raises: ShapeError for fewer than two axes.
        """
        return link(self, TensorView("mT"), contract.matrix_transpose(self))

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.spec.nbytes

    # -- gradients -------------------------------------------------------------------------
    @property
    def requires_grad(self) -> bool:
        """Whether operations on this tensor are recorded for backward."""
        return self.tape_entry is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, wanted: bool = True) -> Self:
        """This tensor, from now on a leaf that collects its gradient (or, if False, no longer).

        Raises: DTypeError for integers and booleans, GradError for results of operations.
        """
        if self.mode is not None and wanted and self.tape_entry is None:
            got = f"a value inside {type(self.mode).__name__}"
            raise TransformError("requires_grad_", "an ordinary tensor", got, "Use gh.grad there.")
        if wanted and self.tape_entry is None:
            if not self.dtype.is_inexact:
                expected = "a floating or complex dtype"
                raise DTypeError("requires_grad_", expected, self.dtype.name, "Cast it to float32.")
            self.tape_entry, self.slot = Leaf(self), 0
        elif not wanted and self.tape_entry is not None:
            if not self.is_leaf:
                got = "the result of an operation"
                raise GradError("requires_grad_", "a leaf to switch off", got, "Use .detach().")
            self.tape_entry = None
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether this tensor is not the recorded result of an operation."""
        return self.tape_entry is None or isinstance(self.tape_entry, Leaf)

    def backward(
        self,
        gradient: "Tensor | None" = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
    ) -> None:
        """Add the gradient of this tensor to `.grad` of every leaf it depends on.

        Raises: GradError if untracked, not of one element without a gradient, or freed.
        """
        backward(self, gradient, retain_graph, create_graph)

    def register_hook(self, fn: Callable[..., Any]) -> "Hook":
        """Call `fn(gradient)` when this tensor's gradient is known; its result replaces the
        gradient. Returns a handle whose `remove()` removes the hook.

        Raises: GradError if the tensor is untracked.
        """
        if self.tape_entry is None:
            fix = "Set requires_grad first."
            raise GradError("register_hook", "a tensor with requires_grad=True", "one without", fix)
        return add_hook(self, self.slot, fn)

    def register_post_accumulate_grad_hook(self, fn: Callable[..., Any]) -> "Hook":
        """Call `fn(tensor)` when a backward pass has added to `.grad`, as soon as its last part is
        known. Returns a handle whose `remove()` removes the hook.

        Raises: GradError if the tensor is not a leaf that collects its gradient.
        """
        if not isinstance(self.tape_entry, Leaf):
            expected = "a leaf with requires_grad=True"
            fix = "Register it on a parameter."
            raise GradError("register_post_accumulate_grad_hook", expected, "another tensor", fix)
        told_early.add(self.tape_entry)
        return add_hook(self, AFTERWARDS, fn)

    def has_hook(self, fn: Callable[..., Any]) -> bool:
        """Whether `fn` is called when this tensor's gradient is known."""
        return any(hook == fn for _, hook in (self.tape_entry.grad_hooks or {}).values())

    def retain_grad(self) -> None:
        """Have backward store this tensor's gradient in `.grad` although it is not a leaf."""
        if not self.is_leaf:
            self.register_hook(self.store_grad)

    def store_grad(self, gradient: Any) -> None:
        """Add `gradient` to `.grad`; the hook of `retain_grad`."""
        self.grad = gradient if self.grad is None else self.grad + gradient

    def detach(self) -> "Tensor":
        """The same contents, not on any tape."""
        if self.mode is not None:
            return self.mode.detach(self)
        return link(self, TensorView("detach"), box(self.payload, self.spec, self.backend))

    # -- writing ---------------------------------------------------------------------------
    def rebind(self, value: "Tensor") -> None:
        """Make this handle show `value`, with its place on the tape."""
        self.payload, self.spec, self.backend = value.payload, value.spec, value.backend
        if value.mode is not None:
            value.mode.transfer(value, self)
        self.mode = value.mode
        if value.tape_entry is not None or not (
            isinstance(self.tape_entry, Leaf) and not recording(self)
        ):
            self.tape_entry, self.slot = value.tape_entry, value.slot

    def write(self, where: str, value: Any) -> Self:
        """This tensor, bound to `value`, after checks that leave it unchanged when they fail."""
        if value.mode is not self.mode:
            got = f"one of an inner transform ({type(value.mode).__name__})"
            fix = "Return a new tensor instead of writing."
            raise TransformError(where, "a value of the tensor's own level", got, fix)
        if isinstance(self.tape_entry, Leaf) and recording(self):
            expected = "no writing to a leaf with requires_grad=True while gradients are recorded"
            raise GradError(where, expected, "one", "Write inside gh.no_grad().")
        self.rebind(value)
        if self.cut_from is not None:
            write_back(self)
        return self

    def in_place(self, where: str, result: "Tensor") -> "Tensor":
        """This tensor bound to the result of an operator, which must have its shape and kind."""
        if result.shape != self.shape:
            fix = "Write x = x … to get a new tensor."
            raise ShapeError(where, f"a result of shape {self.shape}", result.shape, fix)
        if result.dtype is not self.dtype:
            if result.dtype.is_inexact and not self.dtype.is_inexact:
                expected = f"a result that fits {self.dtype.name}"
                raise DTypeError(where, expected, result.dtype.name, "Cast the tensor first.")
            result = cast(result, self.dtype)
        return self.write(where, result)

    def __matmul__(self, other: "Tensor") -> "Tensor":
        return contract.matmul(self, other)

    def __rmatmul__(self, other: ArrayLike) -> Any:
        return contract.matmul(as_value(other, where="matmul"), self)

    def __getitem__(self, key: Any) -> "Tensor":
        return linked(self, key, index.getitem(self, key))

    def __setitem__(self, key: Any, value: ArrayLike) -> None:
        self.write("setitem", index.setitem(self, key, value))

    def copy_(self, source: ArrayLike) -> "Tensor":
        """This tensor, now with the contents of `source` (cast and broadcast to it)."""
        value = cast(unshared(as_value(source, where="copy_")), self.dtype)
        return self.write("copy_", broadcast_to(value, self.shape, where="copy_"))

    # -- to the outside --------------------------------------------------------------------
    def numpy(self) -> np.ndarray:
        """The contents as a read-only NumPy array, without copying where possible.

        Raises: TransformError inside vmap, where there is no single value.
        """
        array = self.contents().view()
        array.flags.writeable = False
        return array

    def contents(self) -> np.ndarray:
        """The array that the backend computed, which nobody may write to."""
        check_visible()
        value = self
        while value.mode is not None:
            value = value.mode.concrete(value)
        return value.backend.to_numpy(value.payload)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        array = self.numpy()
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                got = f"a change of dtype from {array.dtype} to {dtype}, which needs one"
                raise OptionError("__array__", "no copy", got, "Leave copy at None.")
            return array.astype(dtype)
        return array.copy() if copy else array

    def item(self) -> float:
        """The one element as a Python number.

        Raises: ShapeError if there is not just one.
        """
        return self.one("item")

    def tolist(self) -> Any:
        """The contents as nested lists of Python numbers."""
        return self.numpy().tolist()

    def one(self, where: str) -> float:
        """The one element of a 0-d (or one-element) tensor, for bool(), int() …"""
        if self.spec.size != 1:
            fix = "Use gh.any or gh.all, or index it."
            raise ShapeError(where, "one element", f"shape {self.shape}", fix)
        return self.contents().item()

    __bool__: ClassVar[Callable[..., bool]] = converted(bool)
    __int__: ClassVar[Callable[..., int]] = converted(int)
    __float__: ClassVar[Callable[..., float]] = converted(float)
    __complex__: ClassVar[Callable[..., complex]] = converted(complex)

    def __index__(self) -> int:
        if not self.dtype.is_integer:
            raise DTypeError("index", "an integer tensor", self.dtype.name, "Cast it.")
        return int(self.one("index"))

    def __len__(self) -> int:
        if not self.shape:
            raise DTypeError("len", "at least one axis", "a 0-d tensor", "Use .item().")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __contains__(self, element: Any) -> bool:
        return bool((self == element).any())

    def __repr__(self) -> str:
        return printing.format_tensor(self)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        array, name = self.numpy(), self.dtype.name
        return rebuild, (type(self), array.tobytes(), name, self.shape, self.requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Tensor":
        copy = type(self).__new__(type(self), self.detach())
        copy.grad = None if self.grad is None else self.grad.detach()
        memo[id(self)] = copy
        return copy.requires_grad_(self.requires_grad)

    def __copy__(self) -> Any:
        return self.__deepcopy__({})

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: Any = None,
    ) -> Any:
        """The contents for another library: a copy, since not all libraries heed that values must
        not be written to. With copy=False they are shared, read-only for libraries that heed it.

        Raises: BufferError if copy=False and a copy is needed.
        """
        payload, options = self.exported(copy is not False), {}
        if isinstance(payload, np.ndarray):
            options = {"max_version": max_version, "dl_device": dl_device}
        return payload.__dlpack__(stream=stream, **options)

    def __dlpack_device__(self) -> Any:
        return contents_of(self).__dlpack_device__()

    def exported(self, copy: bool = True) -> Any:
        """Contents for another library through DLPack: a copy in row-major order, or without
        `copy` as they lie.

        Raises: BufferError for contents that lie backwards, which DLPack has no form for.
        """
        payload = contents_of(self)
        if copy:
            return payload.copy() if isinstance(payload, np.ndarray) else payload.clone()
        if isinstance(payload, np.ndarray) and any(step < 0 for step in payload.strides):
            expected = "contents whose strides are not negative"
            fix = "Leave copy at None."
            raise BufferError(f"__dlpack__: expected {expected}; got {payload.strides}. {fix}")
        return payload

    # -- dtype and device ------------------------------------------------------------------
    def to(
        self,
        *targets: Any,
        dtype: DTypeLike | None = None,
        device: str | None = None,
        non_blocking: bool = False,
        copy: bool = False,
    ) -> "Tensor":
        """This tensor in another dtype, on another device, or like another tensor; with `copy` not
        this handle. Whoever reads waits, with `non_blocking` or not.

        Raises: DTypeError, DeviceError for arguments that are neither.
        """
        dtype, device = named_targets(targets, dtype, device)
        moved = self if device is None else self.to_device(device)
        moved = moved if dtype is None else cast(moved, dtype)
        return manipulate.copied(moved) if copy and moved is self else moved

    def to_device(self, device: str, /, *, stream: Any = None) -> Any:
        """This tensor on `device`, which the current backend, or one for that device, computes on.

        Raises: DeviceError if no backend reaches it.
        """
        if not isinstance(device, str):
            raise DeviceError("to_device", "a device's name", repr(device), "Use 'cpu'.")
        if device == self.device:
            return self
        backends.check_device("to_device", device)
        here = backends.current()
        if here.device == self.device:
            return self
        return box(here.from_numpy(self.numpy()), self.spec, here)

    def cpu(self) -> Any:
        """This tensor in host memory."""
        home = self.device == "cpu"
        return self if home else box(self.numpy(), self.spec, backends.load("numpy"))

    def cuda(self, device: str | None = None) -> Any:
        """This tensor on a CUDA device, the one of that number or name: `to_device("cuda")`.

        Raises: DeviceError where the backend has none.
        """
        number = f":{device}" if isinstance(device, int) else ""
        return self.to_device(device if isinstance(device, str) else f"cuda{number}")


hooks.tensor_class = Tensor


def contents_of(tensor: Tensor) -> Any:
    """The contents as they lie in memory: a backend's array, or a read-only one of NumPy."""
    check_visible()
    payload = tensor.backend.exported(tensor.payload) if tensor.mode is None else None
    ours = isinstance(payload, np.ndarray) or not hasattr(payload, "__dlpack__")
    return tensor.numpy() if ours else payload


class Hook(AbstractContextManager["Hook"]):
    """Removes a hook from those registered; as a context, at its end."""

    def __init__(self, registered: Any, hook: Any, prepend: bool = False) -> None:
        self.registered = registered
        registered[self] = hook
        if prepend:
            registered.move_to_end(self, last=False)

    def remove(self) -> None:
        """Stop calling the hook."""
        self.registered.pop(self, None)

    def __exit__(self, *exc_info: object) -> None:
        self.remove()


def add_hook(tensor: Tensor, slot: int | None, fn: Callable[..., Any]) -> Hook:
    """Have a tensor's place on the tape call `fn` for a slot, or for a key in place of one:
    `fn()` for AT_END, at the end of each backward pass that adds to `.grad`, once though several
    leaves have it."""
    if tensor.tape_entry.grad_hooks is None:
        tensor.tape_entry.grad_hooks = {}
    return Hook(tensor.tape_entry.grad_hooks, (slot, fn))


def recording(tensor: Tensor) -> bool:
    """Whether the tape that `tensor` belongs to records now."""
    return (tensor.mode or state).records


def rebuild(
    cls: Any, raw: bytes, dtype: str, shape: int | Sequence[int], requires_grad: bool
) -> Tensor:
    array = np.frombuffer(raw, as_dtype(dtype).np).reshape(shape)
    return cls.__new__(cls, as_value(array)).requires_grad_(requires_grad)
