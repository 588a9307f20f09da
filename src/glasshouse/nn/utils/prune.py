"""Pruning: parameters whose smallest, or random, elements are masked with 0."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

from glasshouse.autograd import no_grad
from glasshouse.base.errors import DTypeError, OptionError, ShapeError, suggest
from glasshouse.dispatch.value import as_value, cast, reshape
from glasshouse.nn.module import Module
from glasshouse.nn.utils.parametrizations import others
from glasshouse.nn.utils.recomputed import Recomputed, check_parameter, recomputed_by
from glasshouse.ops.checks import check_type
from glasshouse.ops.index import scatter_set
from glasshouse.tensor import Tensor, abs, concat, linalg, ones_like, random, topk, zeros
from glasshouse.tensor.standard import reduce

__all__ = [
    "BasePruningMethod",
    "CustomFromMask",
    "Identity",
    "L1Unstructured",
    "LnStructured",
    "PruningContainer",
    "RandomStructured",
    "RandomUnstructured",
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]

TYPES = ("global", "structured", "unstructured")


class BasePruningMethod(Recomputed, ABC):
    """A way to choose the elements to prune. A subclass has `PRUNING_TYPE`, "unstructured" (single
    elements), "structured" (whole indices of an axis) or "global", and `compute_mask`.

    Pruning a parameter keeps it as `name`_orig beside the buffer `name`_mask; before each forward
    the attribute `name` becomes their product."""

    PRUNING_TYPE = "unstructured"
    name = ""

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask that follows `default_mask`, by the importance `t` of each element."""

    def compute(self, module: Module) -> Any:
        return self.apply_mask(module)

    def apply_mask(self, module: Module) -> Tensor:
        """The pruned parameter: `name`_orig · `name`_mask."""
        original = getattr(module, f"{self.name}_orig")
        return cast(getattr(module, f"{self.name}_mask"), original.dtype) * original

    def prune(self, t: Any, default_mask: Any = None, importance_scores: Any = None) -> Tensor:
        """The tensor `t` pruned, without changing it.

        Raises: ShapeError for scores or a mask of another shape.
        """
        t = as_value(t, where="prune")
        scores = same_shape("importance_scores", t, importance_scores, t)
        mask = same_shape("default_mask", t, default_mask, ones_like(t))
        return t * cast(self.compute_mask(scores, mask), t.dtype)

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any
    ) -> Any:
        """The method, built from the other arguments, that prunes a parameter from now on. One that
        was pruned before is pruned further."""
        method = cls(*args, **kwargs)
        method.name = name
        pruned = pruning_of(module, name)
        original = check_parameter("prune", module, name if pruned is None else f"{name}_orig")
        present = original if pruned is None else pruned.apply_mask(module)
        scores = same_shape("importance_scores", original, importance_scores, present)
        if pruned is None:
            mask = method.compute_mask(scores.detach(), ones_like(original.detach()))
            method.attach("prune", module)
            module.register_parameter(f"{name}_orig", original)
            module.register_buffer(f"{name}_mask", mask)
        else:
            whole = PruningContainer(pruned)
            whole.add_pruning_method(method)
            mask = whole.compute_mask(scores.detach(), getattr(module, f"{name}_mask"))
            BasePruningMethod.detach("prune", module, name)
            module.register_forward_pre_hook(whole)
            setattr(module, f"{name}_mask", mask)
            method = whole
        method(module, ())
        return method

    def remove(self, module: Module) -> None:
        """Make the pruned value the parameter again, for good."""
        with no_grad():
            value = self.apply_mask(module).detach()
        original = getattr(module, f"{self.name}_orig")
        delattr(module, f"{self.name}_orig")
        delattr(module, f"{self.name}_mask")
        module.__dict__.pop(self.name, None)
        with no_grad():
            original.rebind(value)
        module.register_parameter(self.name, original)


def same_shape(what: str, t: Tensor, value: Tensor | None, default: Tensor) -> Tensor:
    if value is None:
        return default
    value = as_value(value, where="prune")
    if value.shape != t.shape:
        raise ShapeError("prune", f"{what} of shape {t.shape}", value.shape, "Reshape them.")
    return value


def pruning_of(module: Module, name: str) -> BasePruningMethod | None:
    """The method that prunes a parameter, if one does."""
    methods = (hook for hook in recomputed_by(module) if isinstance(hook, BasePruningMethod))
    return next((method for method in methods if method.name == name), None)


class PruningContainer(BasePruningMethod):
    """Methods that prune a parameter one after the other, each the elements still left."""

    def __init__(self, *args: Any) -> None:
        self.methods: tuple[Any, ...] = ()
        for method in args:
            if isinstance(method, PruningContainer):
                self.methods += method.methods
                self.name: str = method.name
            else:
                self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Append a method to the others.

        Raises: OptionError for a method of another parameter.
        """
        check_type("prune", method, BasePruningMethod, "a pruning method", "Pass an instance.")
        if self.methods and method.name != self.name:
            got = repr(method.name)
            raise OptionError("prune", f"a method of the parameter {self.name!r}", got, "Make one.")
        self.methods, self.name = (*self.methods, method), method.name

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        method = self.methods[-1]
        remaining = default_mask != 0
        if method.PRUNING_TYPE == "structured":
            axis = method.dim % t.ndim
            remaining = reduce.any(remaining, axis=others(t, axis))
            places = places_of(remaining)
            rows = (x.take(places, axis=axis) for x in (t, default_mask))
            return scatter_set(default_mask, places, method.compute_mask(*rows), axis=axis)
        if method.PRUNING_TYPE == "global":
            return method.compute_mask(t, default_mask)
        if method.PRUNING_TYPE not in TYPES:
            fix = "Change it."
            raise OptionError("prune", f"a PRUNING_TYPE of {TYPES}", repr(method.PRUNING_TYPE), fix)
        places = places_of(reshape(remaining, (t.size,)))
        flat, mask = reshape(t, (t.size,)), reshape(default_mask, (t.size,))
        part = method.compute_mask(flat.take(places), mask.take(places))
        return reshape(scatter_set(mask, places, part, axis=0), t.shape)

    def __len__(self) -> int:
        return len(self.methods)

    def __iter__(self) -> Any:
        return iter(self.methods)

    def __getitem__(self, index: Any) -> Any:
        return self.methods[index]


def places_of(mask: Tensor) -> Tensor:
    """The indices of the True elements."""
    return mask.nonzero(as_tuple=True)[0]


def check_amount(amount: Any) -> None:
    whole = isinstance(amount, Integral) and not isinstance(amount, bool)
    if not (whole and amount >= 0) and not (isinstance(amount, float) and 0 <= amount <= 1):
        kind = DTypeError if not isinstance(amount, Real) else OptionError
        raise kind(
            "prune", "an amount: a share from 0.0 to 1.0, or a number", repr(amount), "Change it."
        )


def number_of(amount: Any, size: int) -> int:
    """How many of `size` to prune."""
    if isinstance(amount, Integral):
        if int(amount) > size:
            raise OptionError("prune", f"an amount of at most {size}", amount, "Prune fewer.")
        return int(amount)
    return round(amount * size)


class KeepAll(BasePruningMethod):
    """Prunes nothing."""

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        return default_mask


Identity = KeepAll


class RandomUnstructured(BasePruningMethod):
    """Prunes random elements."""

    def __init__(self, amount: float | str) -> None:
        check_amount(amount)
        self.amount = amount

    def scores(self, t: Tensor) -> Tensor:
        """The importance of each element; the least important are pruned."""
        return random.uniform(t.shape)

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        count = number_of(self.amount, t.size)
        if not count:
            return default_mask
        flat = reshape(self.scores(t), (t.size,))
        return masked(default_mask, topk(flat, count, largest=False).indices)


class L1Unstructured(RandomUnstructured):
    """Prunes the elements of least absolute value."""

    def scores(self, t: Any) -> Any:
        return abs(t)


def masked(mask: Tensor, places: Tensor) -> Tensor:
    """The mask with 0 at these places of it as one row."""
    flat = reshape(mask, (mask.size,))
    gone = zeros(places.shape, dtype=mask.dtype)
    return reshape(scatter_set(flat, places, gone, axis=0), mask.shape)


class RandomStructured(BasePruningMethod):
    """Prunes random indices of the axis `dim`."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: int, dim: int = -1) -> None:
        check_amount(amount)
        self.amount = amount
        self.dim = dim

    def scores(self, t: Tensor, axis: int) -> Tensor:
        """How important each index of the axis is."""
        return random.uniform((t.shape[axis],))

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        if t.ndim < 2:
            fix = "Prune its elements instead."
            raise ShapeError("prune", "a parameter of 2 axes or more", t.shape, fix)
        if not -t.ndim <= self.dim < t.ndim:
            raise ShapeError("prune", f"an axis dim={self.dim}", t.shape, "Change dim.")
        axis = self.dim % t.ndim
        count = number_of(self.amount, t.shape[axis])
        if not count:
            return default_mask
        lowest = topk(self.scores(t, axis), count, largest=False).indices
        shape = (*default_mask.shape[:axis], count, *default_mask.shape[axis + 1 :])
        return scatter_set(default_mask, lowest, zeros(shape, dtype=default_mask.dtype), axis=axis)


class LnStructured(RandomStructured):
    """Prunes the indices of the axis `dim` whose elements have the least norm of order n."""

    def __init__(self, amount: int, n: int, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def scores(self, t: Any, axis: Any) -> Any:
        if self.n in ("fro", "nuc"):
            return norms_of_slices(t, axis, self.n)
        return linalg.vector_norm(t, axis=others(t, axis), ord=self.n)


def norms_of_slices(t: Tensor, axis: int, order: Any) -> Tensor:
    """The Frobenius or nuclear norm of each slice, which is a matrix for the latter."""
    if order == "fro":
        return linalg.vector_norm(t, axis=others(t, axis))
    if t.ndim != 3:
        raise ShapeError("prune", "3 axes for the nuclear norm", t.shape, "Use another n.")
    return linalg.matrix_norm(t.moveaxis(axis, 0), ord="nuc")


class CustomFromMask(BasePruningMethod):
    """Prunes the elements where a given mask is 0."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask: Any = as_value(mask, where="prune")

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        if self.mask.shape != default_mask.shape:
            fix = "Reshape it."
            raise ShapeError("prune", f"a mask of shape {default_mask.shape}", self.mask.shape, fix)
        return default_mask * cast(self.mask, default_mask.dtype)


def identity(module: Module, name: str) -> Module:
    """`module` with a mask of ones on the parameter `name`."""
    KeepAll.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: Any) -> Module:
    """`module` with `amount` (a number, or a share as a float) random elements of the parameter
    `name` pruned.

    Raises: OptionError for an unknown name or amount.
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: Module, name: str, amount: float | str, importance_scores: Any = None
) -> Module:
    """`module` with the `amount` elements of the parameter `name` pruned that have the least
    absolute value (or score, if scores are given).

    Raises: OptionError for an unknown name or amount.
    Source: Han et al. 2015, arXiv:1506.02626.
    Example:
        >>> layer = gh.nn.Linear(2, 1, bias=False)
        >>> layer.weight = gh.nn.Parameter([[0.1, -2.0]])
        >>> l1_unstructured(layer, "weight", 0.5).weight.tolist()
        [[0.0, -2.0]]
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: int, dim: int) -> Module:
    """`module` with `amount` random indices of the axis `dim` of the parameter `name` pruned.

    Raises: OptionError for an unknown name or amount; ShapeError for an axis that is not there.
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module, name: str, amount: int, n: int, dim: int, importance_scores: Any = None
) -> Module:
    """`module` with the `amount` indices of the axis `dim` of the parameter `name` pruned that have
    the least norm of order n.

    Raises: OptionError for an unknown name or amount; ShapeError for an axis that is not there.
    Source: Li et al. 2017, arXiv:1608.08710.
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[Any],
    importance_scores: Any = None,
    **kwargs: Any,
) -> None:
    """Prune elements of several parameters together, by one order of importance. `parameters` are
    pairs (module, name); `importance_scores` may have a tensor for each of them.

    Raises: OptionError for a method that is not unstructured; DTypeError unless they are pairs.
    Source: Frankle & Carbin 2019, arXiv:1803.03635.
    Example:
        >>> net = gh.nn.Sequential(gh.nn.Linear(2, 2), gh.nn.Linear(2, 1))
        >>> pairs = [(net[0], "weight"), (net[1], "weight")]
        >>> global_unstructured(pairs, L1Unstructured, amount=2)
        >>> sum(int((module.weight == 0).sum()) for module, _ in pairs)
        2
    """
    where, pairs = "global_unstructured", list(parameters)
    for pair in pairs:
        fits = isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], Module)
        if not fits:
            raise DTypeError(where, "pairs (module, name)", repr(pair), "Name parameters so.")
    method = PruningContainer()
    probe = pruning_method(**kwargs)
    probe.name = "all"
    method.add_pruning_method(probe)
    if probe.PRUNING_TYPE != "unstructured":
        fix = "Pass e.g. L1Unstructured."
        raise OptionError(where, "an unstructured method", probe.PRUNING_TYPE, fix)
    table = importance_scores or {}
    values, scores, masks = [], [], []
    for module, name in pairs:
        value = getattr(module, name).detach()
        values.append(value)
        scores.append(same_shape("importance_scores", value, table.get((module, name)), value))
        masks.append(getattr(module, f"{name}_mask", ones_like(value)))
    whole, old = (concat([reshape(x, (x.size,)) for x in xs], axis=0) for xs in (scores, masks))
    mask, start = method.compute_mask(whole.detach(), old), 0
    for (module, name), value in zip(pairs, values, strict=True):
        part = mask[start : start + value.size]
        custom_from_mask(module, name, reshape(part, value.shape))
        start += value.size


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """`module` with the parameter `name` pruned where `mask` is 0.

    Raises: OptionError for an unknown name; ShapeError for a mask of another shape.
    """
    CustomFromMask.apply(module, name, mask)
    return module


def remove(module: Module, name: str) -> Module:
    """`module` with the pruned value of the parameter `name` as the parameter itself, for good.

    Raises: OptionError for a parameter that is not pruned.
    """
    method = pruning_of(module, name)
    if method is None:
        names = [hook.name for hook in recomputed_by(module)]
        fix = suggest(name, names)
        raise OptionError("remove", "the name of a pruned parameter", repr(name), fix)
    BasePruningMethod.detach("remove", module, name)
    method.remove(module)
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module, or of one below it, is pruned.

    Example:
        >>> is_pruned(gh.nn.Linear(2, 2))
        False
    """
    hooks = (hook for m in module.modules() for hook in recomputed_by(m))
    return any(isinstance(hook, BasePruningMethod) for hook in hooks)
