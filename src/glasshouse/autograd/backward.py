"""Gradients by pulling back: into `.grad` of the leaves, or returned for chosen inputs."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from glasshouse.autograd.tape import AFTERWARDS, AT_END, Leaf, Walk, recording, without_hooks
from glasshouse.base import DTypeError, GradError, OptionError, ShapeError, type_name
from glasshouse.dispatch import Value, as_value, full, phase, zeros


def as_tuple(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


def seeds_of(
    where: str, outputs: Sequence[Value], cotangents: Sequence[Value] | None
) -> list[tuple[tuple[Any, ...], Value]]:
    """[(place, cotangent)] for tracked outputs; a missing cotangent of one element is 1."""
    cotangents = (None,) * len(outputs) if cotangents is None else as_tuple(cotangents)
    if len(cotangents) != len(outputs):
        fix = "Give None for an output of one element."
        raise ShapeError(where, f"{len(outputs)} gradients, one per output", len(cotangents), fix)
    seeds = []
    for y, g in zip(outputs, cotangents, strict=True):
        if not isinstance(y, Value):
            raise DTypeError(where, "tensors as outputs", type_name(y), "Return tensors.")
        if y.tape_entry is None:
            expected = "an output that depends on a tensor with requires_grad=True"
            fix = "Set requires_grad, and leave no_grad."
            raise GradError(where, expected, f"one of spec {y.spec} that does not", fix)
        seeds.append(((y.tape_entry, y.slot), check_seed(where, y, g)))
    return seeds


def check_seed(where: str, y: Value, g: Value | None) -> Value:
    if g is None:
        if y.size != 1:
            expected = "an output of one element, or a gradient for it"
            fix = "Reduce it, e.g. with .sum(), or pass a gradient of that shape."
            raise GradError(where, expected, f"shape {y.shape}", fix)
        return full(y.shape, 1, y.dtype)
    g = as_value(g, where=where)
    if g.shape != y.shape:
        fix = "It has the shape of the output."
        raise ShapeError(where, f"a gradient of shape {y.shape}", g.shape, fix)
    if g.dtype is not y.dtype:
        raise DTypeError(where, f"a gradient of dtype {y.dtype.name}", g.dtype.name, "Cast it.")
    return g.payload if g.mode is not None and g.mode is y.mode else g


def backward(
    outputs: Any, gradients: Any = None, retain_graph: Any = None, create_graph: bool = False
) -> None:
    """Add the gradient of `outputs` to `.grad` of every leaf they depend on.

    Raises: GradError if an output is untracked, lacks a gradient, or its graph was freed.
    """

    def arrive(node, slots) -> bool:
        if isinstance(node, Leaf):
            node.accumulate(slots[0])
            if node.grad_hooks:
                ends.update(dict.fromkeys(node.hooks_at(AT_END)))
        return True

    outputs, walk = as_tuple(outputs), Walk(retain_graph, create_graph)
    ends: dict[Any, Any] = {}  # each once, in the order in which they were met
    with leaves_visited_early(outputs):
        pull("backward", outputs, gradients, walk, arrive)
    for end in ends:
        end()


def held_gradients(
    outputs: Any, leaves: Any, gradients: Any = None, retain_graph: Any = None
) -> tuple[Any, ...]:
    """A backward pass that adds nothing to `.grad` of these leaves and calls none of their hooks:
    their gradients, None for one that none reaches. Other leaves have theirs added."""
    outputs, walk = as_tuple(outputs), Walk(retain_graph, False)
    leaf_gradients = {x.tape_entry: None for x in leaves}

    def arrive(node, slots) -> bool:
        if node in leaf_gradients:
            leaf_gradients[node] = slots[0]
        elif isinstance(node, Leaf):
            node.accumulate(slots[0])
        return True

    with without_hooks(leaf_gradients):
        pull("backward", outputs, gradients, walk, arrive)
    return tuple(leaf_gradients.values())


told_early: weakref.WeakSet[Any] = weakref.WeakSet()  # leaves with hooks for afterwards


@contextmanager
def leaves_visited_early(outputs: tuple[Value, ...]) -> Iterator[None]:
    """Inside, leaves with hooks for afterwards are visited right after the oldest entry that uses
    them, not after all entries that are younger than they; those of one entry, the youngest
    first."""
    before = {}
    oldest, floor = oldest_uses(outputs) if told_early else ({}, 0)
    hooked = [leaf for leaf in oldest if leaf.hooks_at(AFTERWARDS)]
    for number, leaf in enumerate(sorted(hooked, key=lambda leaf: -leaf.seq), 1):
        before[leaf] = leaf.seq
        leaf.seq = min(oldest[leaf], floor) - 0.5 - number / (2 * len(hooked) + 2)
    try:
        yield
    finally:
        for leaf, seq in before.items():
            leaf.seq = seq


def oldest_uses(outputs: Any) -> tuple[dict[Any, Any], float]:
    """({leaf: the number of the oldest entry that uses it}, that of the oldest entry whose uses
    are unknown)."""
    oldest: dict[Any, Any] = {}
    floor = float("inf")
    stack = [y.tape_entry for y in outputs if isinstance(y, Value) and y.tape_entry is not None]
    visited = set(stack)
    while stack:
        entry = stack.pop()
        if getattr(entry, "reaches_everything", False):
            floor = min(floor, entry.seq)
        for parent in getattr(entry, "parents", ()):
            node = parent and parent[0]
            if isinstance(node, Leaf):
                oldest[node] = min(oldest.get(node, entry.seq), entry.seq)
            elif node is not None and node not in visited:
                visited.add(node)
                stack.append(node)
    return oldest, floor


def pull(
    where: str,
    outputs: tuple[Value, ...],
    cotangents: tuple[Value, ...] | None,
    walk: Walk,
    arrive: Callable[..., Any],
) -> None:
    """Walk from the outputs, on the tape they are on, which records for gradients of gradients."""
    modes = [y.mode for y in outputs if isinstance(y, Value) and y.mode is not None]
    with recording(modes[0] if modes else None, walk.create_graph), phase("backward"):
        walk.run(arrive, seeds_of(where, outputs, cotangents))


def leading_to(outputs: tuple[Value, ...], targets: set[Leaf]) -> set[Any] | None:
    """The nodes on a path from `outputs` to a node in `targets`; None when that is not known."""
    useful, visited = set(targets), set()
    stack = [y.tape_entry for y in outputs if y.tape_entry is not None]
    while stack:
        node = stack.pop()
        if node in visited:
            continue
        if getattr(node, "reaches_everything", False):
            return None
        visited.add(node)
        stack.extend(parent[0] for parent in getattr(node, "parents", ()) if parent is not None)
    for node in sorted(visited, key=lambda n: n.seq):
        if any(parent and parent[0] in useful for parent in getattr(node, "parents", ())):
            useful.add(node)
    return useful


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: Any = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    *,
    materialize_grads: bool = False,
) -> tuple[Value, ...]:
    """The gradients of the sum of `outputs` with respect to each of `inputs`, a tuple shaped as
    they are. One that is not used has None if allow_unused, and zeros with materialize_grads.

    Raises: GradError for an input that is untracked, or unused without allow_unused; OptionError
        for only_inputs=False, and for materialize_grads with allow_unused=False.
    Example:
        >>> import glasshouse as gh
        >>> x = gh.tensor(3.0, requires_grad=True)
        >>> grad(x * x, x)[0].item()
        6.0
    """
    if not only_inputs:
        fix = "Call backward() for the gradients of all leaves."
        raise OptionError("grad", "only_inputs=True", repr(only_inputs), fix)
    if materialize_grads and allow_unused is False:
        got = "allow_unused=False"
        raise OptionError("grad", "unused inputs for materialize_grads", got, "Leave it out.")
    outputs, inputs = as_tuple(outputs), as_tuple(inputs)
    for x in inputs:
        if not isinstance(x, Value) or x.tape_entry is None:
            got = x.spec if isinstance(x, Value) else type_name(x)
            fix = "Set requires_grad before computing the outputs."
            raise GradError("grad", "inputs with requires_grad=True", got, fix)
    gradients = pull_back("grad", outputs, inputs, grad_outputs, retain_graph, create_graph)
    if materialize_grads:
        gradients = [zeros(x.spec) if g is None else g for x, g in zip(inputs, gradients)]
    for i, g in enumerate(gradients):
        if g is None and not allow_unused:
            expected = "outputs that depend on every input"
            fix = "Pass allow_unused=True to get None for it."
            raise GradError("grad", expected, f"none that depends on input {i}", fix)
    return tuple(gradients)


def pull_back(
    where: Any,
    outputs: Any,
    inputs: Sequence[Value],
    cotangents: Any,
    retain_graph: bool | None,
    create_graph: bool,
) -> list[Any]:
    targets = {x.tape_entry for x in inputs}
    walk = Walk(retain_graph, create_graph, leading_to(outputs, targets))
    arrived: dict[Any, Any] = {}

    def arrive(node, slots) -> bool:
        if node in targets:
            arrived[node] = slots
        return True

    pull(where, outputs, cotangents, walk, arrive)
    gradients = [arrived.get(x.tape_entry, {}).get(x.slot) for x in inputs]
    return [
        x.mode.constant(g) if g is not None and x.mode is not None and not create_graph else g
        for x, g in zip(inputs, gradients, strict=True)
    ]
