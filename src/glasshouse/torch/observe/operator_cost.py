"""The cost of a PyTorch operator: FLOPs of its primitives, bytes of its operands and results.

An operator runs once on values without contents through the table that lowers Programs, and the
costs of the recorded calls are added up. So there is one truth: an eager step and the Program of
the same step count alike. Operators without an entry there have one in `formulas`, or PyTorch
decomposes them; the others count nothing, and counters list them."""

import re
from typing import Any, NamedTuple

import torch

from glasshouse.base import Spec, float32, having
from glasshouse.base.flags import flags
from glasshouse.dispatch.bind import Watchers, state
from glasshouse.dispatch.call import Call, Cost, NamedPrimitive
from glasshouse.dispatch.watch import Watcher
from glasshouse.torch.aten.draws import KeyInputs, keys_from
from glasshouse.torch.aten.higher_order import CALLING
from glasshouse.torch.aten.table import TABLE, call_entry, in_order, name_of
from glasshouse.torch.formulas import FORMULAS, SPARSE, stored
from glasshouse.torch.lowering.interpreter import TraceBackend
from glasshouse.torch.patches.modes import DispatchMode, without_modes
from glasshouse.torch.patches.operators import (
    DispatchKey,
    HigherOrderOperator,
    OpOverload,
    can_decompose,
    decompositions,
    has_kernel,
    kernel_of,
    schema_of,
)
from glasshouse.torch.tensors.dtypes import FROM_TORCH

# Operators that neither read nor write memory.
UNTOUCHED = re.compile(r"::(_unsafe_view|(new_)?empty(_like|_strided|_permuted)?)$")


class Operator(NamedPrimitive):
    """One of PyTorch's operators, as calls name their primitive: "aten::addmm"."""

    overload: Any
    name: str

    library = "torch"
    only_calls = takes_functions = False
    is_fresh: bool = False  # whether its operand is a new tensor that no operator has returned
    by_contents: bool = False  # whether more than shapes decides its cost; see `contents_of`

    def __init__(self, overload: Any) -> None:
        namespace, _, name = schema_of(overload).name.partition("::")
        self.overload, self.name = overload, f"{namespace}::{name}"
        self.is_fresh = overload is torch.ops.aten.lift_fresh.default
        self.kind = "movement" if is_view(overload) and not self.is_fresh else "torch"
        self.call: Any = kernel_of(overload)  # what its own __call__ calls
        self.silent: bool = namespace in ("profiler", "prim")
        self.composite: bool = not self.silent and is_made_of_others(overload)
        self.by_contents = SPARSE + lookup_name(overload) in FORMULAS or takes_packed(overload)

    def __repr__(self) -> str:
        return f"<operator {self.name}>"


class FunctionOperator(Operator):
    """A higher-order operator: "higher_order::flex_attention". One that only calls its functions
    counts nothing itself; the operators in them are reported."""

    call: Any
    name: str
    kind: str

    def __init__(self, operator: Any) -> None:
        self.overload = self.call = operator
        self.name, self.kind = f"higher_order::{operator.name()}", "torch"
        self.silent: bool = False
        self.composite: bool = False
        self.takes_functions: bool = True
        self.only_calls: bool = operator.name() in CALLING


def is_made_of_others(overload: Any) -> bool:
    """Whether an operator only calls others: it has no kernel for the processor."""
    name, keys = overload.name(), DispatchKey
    return has_kernel(name, keys.CompositeImplicitAutograd) and not has_kernel(name, keys.CPU)


def takes_packed(overload: Any) -> bool:
    """Whether an operator takes a weight that a library has packed."""
    return any("PackedParams" in str(x.type) for x in schema_of(overload).arguments)


def contents_of(args: tuple[torch.Tensor, ...]) -> tuple[Any, ...]:
    """The cost key's part besides shapes: how many elements each sparse tensor stores, and packed
    weights."""
    sparse = [stored(x) for x in tensors_in(args)]
    return (*sparse, *(x for x in args if isinstance(x, torch.ScriptObject)))


def lookup_name(overload: Any) -> str:
    """The name of an operator in the tables of formulas and entries."""
    functional = functional_form(overload)
    return name_of(functional) or functional.name()


def is_view(overload: Any) -> bool:
    """Whether an operator returns views of its operand."""
    returns = schema_of(overload).returns
    aliases = [x.alias_info for x in returns]
    return bool(aliases) and all(a is not None and not a.is_write for a in aliases)


class OperatorWork(NamedTuple):
    """The calls that an operator's call is reported as: one for its pass, and one for its
    recomputation of an earlier pass, if there is any."""

    call: Call
    repeated: Call | None


class CostSum(Watcher):
    """Sums of the costs of calls: [FLOPs, of products, exact, exact of products], with a separate
    sum for recomputation."""

    once: list[int]
    repeated: list[int]

    wants_begin = False

    def __init__(self) -> None:
        self.once, self.repeated = [0] * 4, [0] * 4

    def op(self, call: Call, result: Any, begin_ns: int) -> None:
        """One more call of a card."""
        total = self.repeated if state.phase == "recompute" else self.once
        cost = call.cost
        counts = (cost.flops, cost.matrix_flops, cost.exact_flops, cost.exact_matrix_flops)
        total[:] = [a + b for a, b in zip(total, counts)]


class CostMode(DispatchMode):
    """Adds up the costs of the operators that another one is decomposed into."""

    def __init__(self, total: CostSum) -> None:
        super().__init__()
        self.total = total

    def __torch_dispatch__(
        self,
        func: Any,
        types: tuple[type[Any], ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[Any, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        add_cost(self.total, func, args, named)
        return func(*args, **named)


cost_backend: TraceBackend = TraceBackend()  # its recordings are never computed


def work_of(operator: Operator, args: tuple[Any, ...], named: dict[Any, Any]) -> OperatorWork:
    """The cost of a call of an operator with these arguments; `finish_work` adds its results."""
    total, overload = CostSum(), operator.overload
    with having(state, modes=(), watchers=Watchers([], [])):
        add_cost(total, overload, args, named)
    specs = tuple(map(lenient_spec, tensors_in((args, named))))
    attrs = constants_of(overload, args, named)
    call, repeated = (Call(operator, specs, attrs, ()) for _ in range(2))
    call.cached_cost, repeated.cached_cost = cost_from(total.once), cost_from(total.repeated)
    return OperatorWork(call, repeated if any(total.repeated) else None)


def cost_from(counts: list[int]) -> Cost:
    flops, matrix, exact, exact_matrix = counts
    return Cost(flops, matrix, exact, 0, exact_matrix)


def finish_work(work: OperatorWork, result: Any) -> None:
    """Note the results' shapes of the first call of a kind, and with them the bytes moved."""
    call = work.call
    call.outs = tuple(map(lenient_spec, tensors_in(result)))
    call.out = call.outs[0] if len(call.outs) == 1 else call.outs
    if call.primitive.kind != "movement" and not UNTOUCHED.search(call.name):
        moved = sum(spec.nbytes for spec in (*call.specs, *call.outs))
        call.cached_cost = call.cost._replace(bytes=moved)


def add_cost(total: CostSum, overload: Any, args: Any, named: dict[Any, Any]) -> None:
    """Add the cost of an operator by its formula, its entry, or its decomposition."""
    if isinstance(overload, HigherOrderOperator):
        add_lowered(total, None, f"higher_order::{overload.name()}", args, named)
        return
    if not isinstance(overload, OpOverload) or is_view(overload):
        return
    functional, name = functional_form(overload), lookup_name(overload)
    named = {k: v for k, v in named.items() if k != "out" and not k.startswith("out")}
    if SPARSE + name in FORMULAS and any(map(stored, tensors_in(args))):
        add_lowered(total, functional, SPARSE + name, args, named)
    elif is_list_form(functional):
        add_costs_of_list(total, functional, args, named)
    elif not add_lowered(total, functional, name, args, named):
        add_decomposed(total, functional, args, named)


def add_lowered(
    total: CostSum, overload: Any, name: str, args: tuple[Any, ...], named: dict[Any, Any]
) -> bool:
    """Add the calls of a formula or an entry; False where none takes these arguments."""
    compute, entry = FORMULAS.get(name), TABLE.get(name)
    before = total.once[:], total.repeated[:]
    try:
        with (
            having(state, backend=cost_backend, records=False, phase="forward", scope=None),
            having(state, watchers=Watchers([total], [])),
            keys_from(KeyInputs(cost_backend.input)),
        ):
            if overload is not None:
                args, named = in_order(overload, args, named)
            values = as_stored(args) if name.startswith(SPARSE) else as_values(args)
            named_values = {k: as_values(v) for k, v in named.items()}
            if compute is not None:
                add_number(total, compute(*values, **named_values))
            elif entry is not None:
                call_entry(entry, values, named_values, (*args, *named.values()))
            return compute is not None or entry is not None
    except Exception as error:  # it may need contents, or refuse what is left to PyTorch
        total.once[:], total.repeated[:] = before
        debug_uncounted(name, error)
        return False
    finally:
        cost_backend.recorder.forget()


def add_number(total: CostSum, flops: Any) -> None:
    """Add a formula's FLOPs, if it returns a number."""
    if isinstance(flops, int):
        total.once[0] += flops
        total.once[2] += flops


def add_decomposed(
    total: CostSum, overload: Any, args: tuple[int | torch.Tensor, ...], named: dict[Any, Any]
) -> None:
    """Add the costs of an operator's PyTorch decomposition, on tensors without memory."""
    decompose = decompositions.get(overload)
    if decompose is None and can_decompose(overload):
        decompose = overload.decompose
    if decompose is None:
        return
    args, named = on_meta(args), {k: on_meta(v) for k, v in named.items()}
    before = total.once[:], total.repeated[:]
    try:
        with without_modes(), CostMode(total), torch.no_grad():
            decompose(*args, **named)
    except Exception as error:  # it reads contents, which do not exist
        total.once[:], total.repeated[:] = before
        debug_uncounted(overload.name(), error)


def debug_uncounted(name: str, error: Exception) -> None:
    """Say why an operator could not be run on shapes, under GH_DEBUG=1."""
    if flags.debug:
        print(f"[gh] the cost of {name} is not known by shapes: {error!r}")


# -- lists of tensors -------------------------------------------------------------------------


def is_list_form(overload: Any) -> bool:
    """Whether an operator does the same to each tensor of lists, as torch.optim's updates do."""
    return "::_foreach_" in schema_of(overload).name


def add_costs_of_list(
    total: CostSum, overload: Any, args: tuple[Any, ...], named: dict[Any, Any]
) -> None:
    """Add the costs of the operator for one tensor, for each of the lists."""
    name = re.sub(r"^aten::_foreach_", "", schema_of(overload).name)
    name = {"norm": "linalg_vector_norm", "clamp_max": "clamp_max"}.get(name, name)
    packet = getattr(torch.ops.aten, name, None)
    lists = [x for x in args if isinstance(x, (list, tuple))]
    for i in range(len(lists[0]) if lists and packet is not None else 0):
        single_args = [x[i] if isinstance(x, (list, tuple)) else x for x in args]
        single = matching_overload(packet, single_args)
        if single is not None:
            add_cost(total, single, single_args, {k: v for k, v in named.items() if k != "ord"})


def matching_overload(packet: Any, args: list[float | torch.Tensor]) -> Any:
    """The overload of an operator that takes tensors and numbers in these places."""
    names = "Tensor" if len(args) > 1 and isinstance(args[1], torch.Tensor) else "Scalar"
    candidates = (names, f"Tensor_{names}", "default", "self", "ScalarList")
    if len(args) == 1:  # `sqrt.Scalar` is TorchScript's, and no operator
        candidates = ("default", "self")
    forms = (getattr(packet, name, None) for name in candidates)
    return next((op for op in forms if op is not None), None)


# -- arguments --------------------------------------------------------------------------------

functional_forms: dict[Any, Any] = {}


def functional_form(overload: Any) -> Any:
    """The overload that computes the same and writes nothing: `add.Tensor` for `add_.Tensor`."""
    form = functional_forms.get(overload)
    if form is None:
        form = functional_forms[overload] = find_functional_form(overload)
    return form


def find_functional_form(overload: Any) -> Any:
    schema = schema_of(overload)
    if not schema.is_mutable:
        return overload
    namespace, _, name = schema.name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_"), None)
    expected = [(x.name, str(x.type)) for x in schema.arguments if not x.is_out]
    for candidate in packet.overloads() if packet is not None else ():
        other = getattr(packet, candidate)
        arguments = [(x.name, str(x.type)) for x in schema_of(other).arguments]
        if not schema_of(other).is_mutable and arguments == expected:
            return other
    return overload


def lenient_spec(tensor: torch.Tensor) -> Spec:
    """Shape and dtype of a tensor; float32 for dtypes that we lack, which count alike."""
    shared = tensor.dtype in dict.keys(FROM_TORCH)
    return Spec(tuple(tensor.shape), FROM_TORCH[tensor.dtype] if shared else float32)


def as_values(x: Any) -> Any:
    """Arguments with tensors replaced by values without contents."""
    if isinstance(x, torch.Tensor):
        return cost_backend.input(lenient_spec(x))
    if isinstance(x, (list, tuple)):
        return [as_values(part) for part in x]
    return x


def as_stored(args: Any) -> list[Any]:
    """Arguments of an operator with sparse operands; these as `stored`."""
    tensors = (isinstance(x, torch.Tensor) and stored(x) for x in args)
    return [sparse or as_values(x) for x, sparse in zip(args, tensors)]


def on_meta(x: Any) -> Any:
    """Arguments with tensors replaced by meta tensors."""
    if isinstance(x, torch.Tensor):
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
    if isinstance(x, (list, tuple)):
        return [on_meta(part) for part in x]
    return x


def tensors_in(x: Any) -> list[Any]:
    """All tensors among arguments or results."""
    if isinstance(x, torch.Tensor):
        return [x]
    if isinstance(x, dict):
        x = x.values()
    elif not isinstance(x, (list, tuple)):
        return []
    return [tensor for part in x for tensor in tensors_in(part)]


def constants_of(overload: Any, args: tuple[Any, ...], named: dict[Any, Any]) -> dict[Any, Any]:
    """The arguments that are no tensors, by name; none of a higher-order operator."""
    if not isinstance(overload, OpOverload):
        return {}
    names = (x.name for x in schema_of(overload).arguments)
    arguments = {**dict(zip(names, args)), **named}
    return {k: v for k, v in arguments.items() if v is not None and not tensors_in(v)}
