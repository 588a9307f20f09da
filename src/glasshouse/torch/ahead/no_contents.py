"""PyTorch models, optimizers and inputs without contents while they are analysed. Sizes, strides
and shared memory are kept; afterwards the contents are back."""

from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch

from glasshouse.analyze.meta import contents_of, is_pair
from glasshouse.base import having
from glasshouse.base.errors import OptionError, type_name
from glasshouse.dispatch.bind import state
from glasshouse.dispatch.scope import path_of
from glasshouse.torch.ahead.result_cache import RememberedResults
from glasshouse.torch.observe.operator_cost import tensors_in
from glasshouse.torch.patches.fakes import (
    DataDependentOutput,
    DynamicOutputShape,
    FakeTensor,
    FakeTensorMode,
)
from glasshouse.torch.patches.operators import GROUPED_PRODUCT, schema_of
from glasshouse.torch.patches.tensors import copy_hooks, storage_address
from glasshouse.torch.patches.trees import tree_map

Tensor: type[torch.Tensor] = torch.Tensor
Parameter: type[torch.nn.Parameter] = torch.nn.Parameter
NEEDS_CONTENTS = (DataDependentOutput, DynamicOutputShape)
KNOWN_BYTES = 1 << 26  # the largest tensor of whole numbers that is computed
aten: Any = torch.ops.aten
# Losses that the processor reduces in place: the scalar keeps the memory of all elements.
ELEMENTWISE_LOSSES = {
    aten.mse_loss.default,
    aten.smooth_l1_loss.default,
    aten.soft_margin_loss.default,
    aten.binary_cross_entropy.default,
}


class ContentlessMode(FakeTensorMode):
    """Runs operators on sizes alone, and notes which one failed, in which module.

    Known whole numbers stay known: positions, masks and indices made of them are computed, so that
    a program reads the values of eager. While `computes` is false, nothing is computed."""

    computes = True

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True, allow_fallback_kernels=False)
        self.failed: tuple[str, str] = "", ""
        self.error: Exception | None = None
        self.remembered: RememberedResults = RememberedResults(self)

    def dispatch(
        self,
        func: Any,
        types: tuple[type[Any], ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """The results of an operator."""
        try:
            return self.results_of(func, types, args, kwargs or {})
        except Exception as error:
            self.failed, self.error = (str(func), path_of(state.scope)), error
            raise

    def results_of(
        self, func: Any, types: tuple[type[Any], ...], args: tuple[Any, ...], named: dict[Any, Any]
    ) -> Any:
        if not self.computes or not all_known((*args, *named.values())):
            if func is GROUPED_PRODUCT:
                with self:
                    return grouped_product(*args, **named)
            compute = partial(super().dispatch, func, types, args, named)
            result = self.remembered.result(func, args, named, compute)
            if args and type(args[0]) is Tensor and schema_of(func).name.endswith("_"):
                return args[0]  # known whole numbers that the operator writes to
            if func in ELEMENTWISE_LOSSES and result.dim() == 0:
                with self:
                    elements = torch.broadcast_shapes(args[0].shape, args[1].shape)
                    return result.new_empty(elements).as_strided((), ())
            return result
        if schema_of(func).is_mutable and tensors_in(args):
            return func(*args, **named)
        try:
            sized = super().dispatch(func, types, args, named)
        except NEEDS_CONTENTS:
            return func(*args, **named)
        tensors = tensors_in(sized)
        if tensors and all(map(may_be_known, tensors)):
            return func(*args, **named)
        return sized


class Contentless:
    """Makes for each tensor one contentless copy on the processor."""

    def __init__(self, mode: ContentlessMode) -> None:
        self.mode = mode
        self.tensors: dict[int, torch.Tensor] = {}  # by id
        self.memories: dict[int, torch.Tensor] = {}  # the first of each storage, by address
        self.originals: list[torch.Tensor] = []  # keeps their ids in use

    def of(self, x: Any) -> Any:
        """The contentless copy of a tensor; any other value as it is."""
        if not isinstance(x, Tensor):
            return x
        if id(x) not in self.tensors:
            self.originals.append(x)
            self.tensors[id(x)] = self.make(x)
        return self.tensors[id(x)]

    def all_of(self, x: Any) -> Any:
        """A value with its tensors, those in tuples too, replaced by contentless copies."""
        return tuple(map(self.all_of, x)) if type(x) is tuple else self.of(x)

    def make(self, x: torch.Tensor) -> torch.Tensor:
        """A tensor without contents like another one; a number that is known stays known."""
        if isinstance(x, torch.nn.parameter.UninitializedTensorMixin):
            expected, fix = "a model whose parameters have sizes", "Run a lazy model once before."
            raise OptionError("step", expected, type_name(x), fix)
        with torch.no_grad():
            copy = self.number(x) if is_number(x) else self.part_of_memory(x)
        if isinstance(x, Parameter):
            copy = Parameter(copy, x.requires_grad)
            copy.__dict__.update(x.__dict__)
            copy_hooks(x, copy)
        elif x.requires_grad:
            copy.requires_grad_()
        if x.is_leaf and x.grad is not None:
            copy.grad = self.of(x.grad)
        return copy

    def forget(self) -> None:
        """Drop all copies: each lives as long as its user holds it."""
        for table in (self.tensors, self.memories, self.originals):
            table.clear()

    def number(self, x: torch.Tensor) -> torch.Tensor:
        """A number that is known, such as an optimizer's count of its steps."""
        converter = self.mode.fake_tensor_converter
        return converter.from_real_tensor(self.mode, x.detach().clone(), make_constant=True)

    def part_of_memory(self, x: torch.Tensor) -> torch.Tensor:
        """A view of the memory that replaces the tensor's."""
        storage = x.untyped_storage()
        address = storage_address(storage)
        if address not in self.memories:
            self.memories[address] = self.memory(x)
        memory = self.memories[address]
        with self.mode if isinstance(memory, FakeTensor) else nullcontext():
            memory = memory if memory.dtype == x.dtype else memory.view(x.dtype)
            return memory.as_strided(x.size(), x.stride(), x.storage_offset()).detach()

    def memory(self, x: torch.Tensor) -> torch.Tensor:
        """A replacement of a tensor's whole storage: a copy of known whole numbers, else without
        contents."""
        storage = x.untyped_storage()
        size = storage.nbytes() // x.itemsize
        if x.device.type == "cpu" and not isinstance(x, FakeTensor) and may_be_known(x):
            return torch.empty(0, dtype=x.dtype).set_(storage.clone(), 0, (size,), (1,))
        return self.unknown((size,), x.dtype)

    def unknown(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A tensor with unknown contents, of whole numbers too."""
        with having(self.mode, computes=False), self.mode:
            return torch.empty(shape, dtype=dtype, device="cpu")

    def input_of(self, x: Any) -> Any:
        """An input from a tensor, (shape, dtype), or an object with both, also in containers."""
        if isinstance(x, Tensor):
            return self.of(x)
        if is_pair(x) or is_pair_of_torch(x) or hasattr(x, "shape") and hasattr(x, "dtype"):
            shape, dtype = x if isinstance(x, tuple) else (x.shape, x.dtype)
            return self.unknown(tuple(shape), dtype_of(dtype))
        if isinstance(x, dict):
            return {name: self.input_of(part) for name, part in x.items()}
        if type(x) in (list, tuple):
            return type(x)(map(self.input_of, x))
        return x


def grouped_product(
    a: torch.Tensor, b: torch.Tensor, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> torch.Tensor:
    """The result of a grouped product on the processor; PyTorch's own rule takes bfloat16 only.
    Rows begin at multiples of 16 bytes."""
    groups = (len(offs),) if a.dim() == b.dim() == 2 else ()
    groups = a.shape[:1] if a.dim() == b.dim() == 3 else groups
    size = (*groups, a.shape[-2], b.shape[-1])
    dtype = out_dtype or a.dtype
    step = 16 // dtype.itemsize
    row = -(-size[-1] // step) * step
    strides = (row * size[-2], row, 1)[-len(size) :]
    return torch.empty_strided(size, strides, dtype=dtype, device=a.device)


def with_batch(inputs: Any, batch: int) -> Any:
    """The inputs with another batch size; examples of whole numbers are repeated."""
    if isinstance(inputs, torch.Tensor):
        if not inputs.dim():
            return inputs
        if inputs.device.type == "cpu" and may_be_known(inputs):
            return inputs[torch.arange(batch) % len(inputs)]
        return inputs.new_empty((batch, *inputs.shape[1:]), device="meta")
    if is_pair(inputs) or is_pair_of_torch(inputs):
        shape, dtype = inputs
        return (batch, *shape[1:]) if shape else (), dtype
    if isinstance(inputs, dict):
        return {name: with_batch(part, batch) for name, part in inputs.items()}
    if type(inputs) in (list, tuple):
        return type(inputs)(with_batch(part, batch) for part in inputs)
    return inputs


def is_number(x: torch.Tensor) -> bool:
    """Whether a tensor is one float with its own memory on the processor."""
    is_alone = x.dim() == 0 and x.untyped_storage().nbytes() == x.itemsize
    return is_alone and x.is_floating_point() and x.device.type == "cpu"


def may_be_known(x: torch.Tensor) -> bool:
    """Whether a tensor has whole numbers or booleans, few enough to compute with."""
    is_whole = not x.is_floating_point() and not x.is_complex()
    return is_whole and x.untyped_storage().nbytes() <= KNOWN_BYTES


def all_known(args: Any) -> bool:
    """Whether the tensors among arguments are whole numbers with contents."""
    for x in args:
        if isinstance(x, Tensor):
            if isinstance(x, FakeTensor) or x.is_floating_point() or x.is_complex():
                return False
        elif type(x) in (list, tuple) and not all_known(x):
            return False
    return True


def is_pair_of_torch(x: Any) -> bool:
    """Whether a value is (shape, dtype) with a PyTorch dtype."""
    return isinstance(x, tuple) and len(x) == 2 and isinstance(x[1], torch.dtype)


def dtype_of(dtype: str | torch.dtype) -> torch.dtype:
    """PyTorch's dtype of this name, or of this dtype of ours or NumPy's.

    Raises: OptionError for any other value
    """
    torchs = dtype if isinstance(dtype, torch.dtype) else getattr(torch, str(dtype), None)
    if not isinstance(torchs, torch.dtype):
        raise OptionError("step", "a dtype of PyTorch's", repr(dtype), 'Write e.g. "float32".')
    return torchs


@contextmanager
def without_contents(
    modules: list[Any], optimizer: torch.optim.Optimizer | None, contentless: Contentless
) -> Iterator[None]:
    """Inside, the tensors of modules and an optimizer have no contents. Afterwards all is restored,
    the state of random numbers too."""
    parts = [part for module in modules for part in module.modules()]
    contents = contents_of([*map(vars, parts), *([vars(optimizer)] if optimizer else [])])
    optimizer_state = optimizer.state if optimizer else {}
    before = dict(optimizer_state)
    try:
        with torch.random.fork_rng(devices=[]):
            for x, _ in contents:
                replace_tensors(x, contentless)
            optimizer_state.clear()
            for p, entry in before.items():
                optimizer_state[contentless.of(p)] = tree_map(contentless.of, entry)
            yield
    finally:
        for x, original in contents:
            if not isinstance(x, tuple):
                x.clear()
                (x.extend if isinstance(x, (list, deque)) else x.update)(original)
        optimizer_state.clear()
        optimizer_state.update(before)


def replace_tensors(x: Any, contentless: Contentless) -> None:
    """Replace a container's tensors by contentless copies."""
    if isinstance(x, (dict, OrderedDict)):
        x.update({key: contentless.all_of(value) for key, value in x.items()})
    elif isinstance(x, (list, deque)):
        for i, value in enumerate(x):
            x[i] = contentless.all_of(value)
