"""Syntax of the package's files, as several tests read it."""

import ast
import functools


@functools.cache
def nodes_of(tree: ast.Module) -> tuple[ast.AST, ...]:
    """All nodes of a module, in the order of `ast.walk`, which takes long: each test reads them."""
    return tuple(ast.walk(tree))
