"""Trees: nested tuples, lists, dicts and named tuples with values at their leaves. The values of a
dict come in the order of its sorted keys, where they can be sorted; the dict that is made of them
again has its keys in their own order. `gh.tree` is this module."""

import builtins
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from glasshouse.base.errors import ShapeError

__all__ = ["TreeDef", "all", "flatten", "leaves", "map", "reduce", "structure", "transpose",
           "unflatten"]  # fmt: skip


@dataclass(frozen=True)
class TreeDef:
    """The structure of a tree without its leaves; None is an empty tree."""

    kind: Any  # the container's class, or None for a leaf
    keys: tuple[Any, ...]
    children: tuple[Any, ...]
    num_leaves: int
    order: tuple[Any, ...] | None = field(default=None, compare=False)  # of a dict's keys, unsorted

    def unflatten(self, leaves: Any) -> Any:
        """The tree of this structure with `leaves` put in, in order."""
        return unflatten(self, leaves)

    def __repr__(self) -> str:
        if self.kind is None:
            return "*"
        names = [f"{key}=" for key in self.keys] or [""] * len(self.children)
        children = (name + repr(child) for name, child in zip(names, self.children, strict=True))
        return f"{self.kind.__name__}({', '.join(children)})"


LEAF = TreeDef(None, (), (), 1)


def children_of(tree: Any) -> Any:
    """(keys, children) of a container, or None for a leaf."""
    if type(tree) is dict:
        try:
            keys = tuple(sorted(tree))
        except TypeError:  # keys that cannot be compared stay in their order
            keys = tuple(tree)
        return keys, tuple([tree[key] for key in keys])
    if tree is None:
        return (), ()
    if isinstance(tree, (tuple, list)):
        return (), tuple(tree)
    if isinstance(tree, dict):
        return tuple(tree), tuple(tree.values())
    return None


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeDef]:
    """(leaves, treedef): the leaves in order, and the structure that `unflatten` needs. A subtree
    for which `is_leaf` is true counts as one leaf.

    Example:
        >>> flatten({"b": 3, "a": (1, 2)})[0]
        [1, 2, 3]
    """
    leaves: list[Any] = []
    return leaves, flatten_into(tree, leaves, is_leaf)


def flatten_into(tree: Any, leaves: list[Any], is_leaf: Any = None) -> TreeDef:
    keys_and_children = None if is_leaf is not None and is_leaf(tree) else children_of(tree)
    if keys_and_children is None:
        leaves.append(tree)
        return LEAF
    keys, children = keys_and_children
    before = len(leaves)
    defs = tuple([flatten_into(child, leaves, is_leaf) for child in children])
    order = tuple(tree) if type(tree) is dict else None
    return TreeDef(type(tree), keys, defs, len(leaves) - before, order)


def unflatten(treedef: TreeDef, leaves: Any) -> Any:
    """The tree of structure `treedef` with `leaves` put in, in order.

    Example:
        >>> unflatten(structure((0, [0])), [1, 2])
        (1, [2])
    """
    return build(treedef, iter(leaves))


def leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a tree, in order.

    Example:
        >>> leaves([1, {"b": 3, "a": 2}, None])
        [1, 2, 3]
    """
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> TreeDef:
    """The structure of a tree, which `unflatten` needs; equal for trees that are nested alike.

    Example:
        >>> structure((1, [2])) == structure((5, [6]))
        True
    """
    return flatten(tree, is_leaf)[1]


def reduce(
    fn: Callable[..., Any],
    tree: Any,
    initializer: Any = None,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """fn(… fn(fn(initializer, leaf), leaf) …) over the leaves; without an initializer the first
    leaf takes its place.

    Example:
        >>> reduce(lambda total, x: total + x, (1, [2, 3]))
        6
    """
    first = () if initializer is None else (initializer,)
    return functools.reduce(fn, leaves(tree, is_leaf), *first)


def all(tree: Any, *, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether every leaf is true.

    Example:
        >>> all((True, [1, 0]))
        False
    """
    return builtins.all(leaves(tree, is_leaf))


def transpose(outer: TreeDef, inner: TreeDef | None, tree: Any) -> Any:
    """A tree of structure `outer` whose leaves are trees of structure `inner`, turned inside out.

    Raises: ShapeError unless it is one.
    Example:
        >>> transpose(structure([0, 0]), structure((0, 0, 0)), [(1, 2, 3), (4, 5, 6)])
        ([1, 4], [2, 5], [3, 6])
    """
    trees = leaves_up_to("transpose", outer, tree)
    inner = structure(trees[0]) if inner is None else inner
    rows = [leaves_up_to("transpose", inner, part) for part in trees]
    return unflatten(inner, [unflatten(outer, column) for column in zip(*rows, strict=True)])


def leaves_up_to(where: str, treedef: TreeDef, tree: Any) -> list[Any]:
    """The parts of a tree that stand where `treedef` has leaves."""
    if treedef.kind is None:
        return [tree]
    keys, children = children_of(tree) or ((), ())
    is_alike = keys == treedef.keys and len(children) == len(treedef.children)
    if type(tree) is not treedef.kind or not is_alike:
        fix = "Give every argument the same nesting."
        raise ShapeError(where, f"a tree of structure {treedef}", structure(tree), fix)
    pairs = zip(treedef.children, children, strict=True)
    return [part for child, x in pairs for part in leaves_up_to(where, child, x)]


def map(
    f: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """Apply f to each leaf of `tree` and the values at its place in the trees of `rest`.

    Raises: ShapeError for trees of different structures.
    Example:
        >>> map(lambda a, b: a + b, {"w": 1, "b": 2}, {"w": 10, "b": 20})
        {'w': 11, 'b': 22}
    """
    own, treedef = flatten(tree, is_leaf)
    columns: Iterable[Any] = [leaves_up_to("tree.map", treedef, other) for other in rest]
    return unflatten(treedef, builtins.map(f, own, *columns))


def build(treedef: TreeDef, leaves: Any) -> Any:
    if treedef.kind is None:
        return next(leaves)
    if treedef.kind is type(None):
        return None
    children = [build(child, leaves) for child in treedef.children]
    if issubclass(treedef.kind, dict):
        items = dict(zip(treedef.keys, children, strict=True))
        if treedef.order is not None:
            return {key: items[key] for key in treedef.order}
        return items if treedef.kind is dict else treedef.kind(items)
    return treedef.kind(*children) if hasattr(treedef.kind, "_fields") else treedef.kind(children)


def tree_map(fn: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """The tree of `fn` of the leaves of `tree` and `rest`.

    Raises: ShapeError if they differ.
    """
    columns, structures = zip(*builtins.map(flatten, (tree, *rest)), strict=True)
    for treedef in structures:
        if treedef != structures[0]:
            expected = "trees of one structure"
            fix = "Give every argument the same nesting."
            raise ShapeError("tree_map", expected, f"{structures[0]} and {treedef}", fix)
    return unflatten(structures[0], builtins.map(fn, *columns))


def broadcast_prefix(where: str, prefix: Any, treedef: TreeDef) -> list[Any]:
    """One entry of `prefix` per leaf: a prefix tree whose leaves stand for whole subtrees."""
    out: list[Any] = []

    def walk(prefix, treedef):
        if treedef.kind is None or not isinstance(prefix, (tuple, list, dict)):
            out.extend([prefix] * treedef.num_leaves)
            return
        keys, children = children_of(prefix)
        if len(children) != len(treedef.children) or keys != treedef.keys:
            fix = "Give one entry per argument, or one for all."
            raise ShapeError(where, f"a prefix of {treedef}", repr(prefix), fix)
        for child, sub in zip(children, treedef.children, strict=True):
            walk(child, sub)

    walk(prefix, treedef)
    return out
