"""Trees: nested tuples, lists, dicts and named tuples with values at their leaves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from glasshouse.base.errors import ShapeError


@dataclass(frozen=True)
class TreeDef:
    """The structure of a tree without its leaves; None is an empty tree."""

    kind: Any  # the container's class, or None for a leaf
    keys: tuple[Any, ...]
    children: tuple[Any, ...]
    num_leaves: int

    def __repr__(self) -> str:
        if self.kind is None:
            return "*"
        names = [f"{key}=" for key in self.keys] or [""] * len(self.children)
        children = (name + repr(child) for name, child in zip(names, self.children, strict=True))
        return f"{self.kind.__name__}({', '.join(children)})"


LEAF = TreeDef(None, (), (), 1)


def children_of(tree: Any) -> Any:
    """(keys, children) of a container, or None for a leaf."""
    if tree is None:
        return (), ()
    if isinstance(tree, (tuple, list)):
        return (), tuple(tree)
    if isinstance(tree, dict):
        return tuple(tree), tuple(tree.values())
    return None


def flatten(tree: Any) -> tuple[list[Any], TreeDef]:
    """(leaves, treedef): the leaves in order, and the structure that `unflatten` needs.

    Example:
        >>> flatten({"a": (1, 2), "b": 3})[0]
        [1, 2, 3]
    """
    leaves: list = []
    return leaves, flatten_into(tree, leaves)


def flatten_into(tree: Any, leaves: list[Any]) -> TreeDef:
    keys_and_children = children_of(tree)
    if keys_and_children is None:
        leaves.append(tree)
        return LEAF
    keys, children = keys_and_children
    before = len(leaves)
    defs = tuple(flatten_into(child, leaves) for child in children)
    return TreeDef(type(tree), keys, defs, len(leaves) - before)


def unflatten(treedef: TreeDef, leaves: Any) -> Any:
    """The tree of structure `treedef` with `leaves` put in, in order."""
    return build(treedef, iter(leaves))


def build(treedef: TreeDef, leaves: Any) -> Any:
    if treedef.kind is None:
        return next(leaves)
    if treedef.kind is type(None):
        return None
    children = [build(child, leaves) for child in treedef.children]
    if issubclass(treedef.kind, dict):
        items = dict(zip(treedef.keys, children, strict=True))
        return items if treedef.kind is dict else treedef.kind(items)
    return treedef.kind(*children) if hasattr(treedef.kind, "_fields") else treedef.kind(children)


def tree_map(fn: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """The tree of `fn` of the leaves of `tree` and `rest`.

    Raises: ShapeError if they differ.
    """
    columns, structures = zip(*map(flatten, (tree, *rest)), strict=True)
    for treedef in structures:
        if treedef != structures[0]:
            expected = "trees of one structure"
            fix = "Give every argument the same nesting."
            raise ShapeError("tree_map", expected, f"{structures[0]} and {treedef}", fix)
    return unflatten(structures[0], map(fn, *columns))


def broadcast_prefix(where: str, prefix: Any, treedef: TreeDef) -> list[Any]:
    """One entry of `prefix` per leaf: a prefix tree whose leaves stand for whole subtrees."""
    out: list = []

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
