"""Products that sum over axes: matmul, tensordot, einsum and their kin, all through one card."""

import math
from typing import TYPE_CHECKING, Any

from glasshouse.base import DTypeError, OptionError, ShapeError, broadcast_shapes, check_axis
from glasshouse.dispatch import as_value, broadcast_to, cast, reshape
from glasshouse.dispatch import value as values
from glasshouse.dispatch.compose import composed
from glasshouse.dispatch.value import ArrayLike
from glasshouse.ops import contract as cards
from glasshouse.ops.cast import conj
from glasshouse.ops.checks import check_matrices, check_type
from glasshouse.ops.index import move_axes
from glasshouse.ops.movement import permute, section
from glasshouse.ops.reduce import sum_

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


__all__ = ["einsum", "inner", "kron", "matmul", "matrix_transpose", "outer", "tensordot", "vecdot"]


def promoted(where: str, *xs: Any) -> "list[Tensor]":
    """The operands as values of one numeric dtype; shapes unchanged."""
    xs = [as_value(values.as_operand(where, x), where=where) for x in xs]
    dtype = values.common_dtype(where, xs)
    if dtype.is_bool:
        raise DTypeError(where, "numbers", "bool", "Cast it.")
    return [cast(x, dtype) for x in xs]


@composed
def matrix_transpose(x: Any, /) -> "Tensor":
    """x with its last two axes swapped: (..., m, n) -> (..., n, m).

    Raises: ShapeError for less.
    """
    x = check_matrices("matrix_transpose", as_value(x, where="matrix_transpose"))
    n = x.ndim
    return permute(x, axes=(*range(n - 2), n - 1, n - 2))


@composed
def matmul(x1: ArrayLike, x2: ArrayLike, /) -> "Tensor":
    """The matrix product over the last axis of x1 and the last but one of x2.
    Leading axes broadcast; an operand with one axis is a row on the left, a column on the right. A
    matrix on the right is shared by all rows of x1 and never repeated in memory.

    Shapes: (..., m, k), (..., k, n) -> (..., m, n).
    Dtypes: numeric, promoted.
    Raises: ShapeError if the summed sizes differ or an operand is 0-d, DTypeError for booleans.
    Example:
        >>> matmul(as_value([[1, 2]]), as_value([3, 4])).tolist()
        [11]
    """
    x1, x2 = promoted("matmul", x1, x2)
    if not x1.ndim or not x2.ndim:
        expected = "operands with one axis or more"
        raise ShapeError("matmul", expected, f"{x1.shape} and {x2.shape}", "Use * for scalars.")
    if x1.shape[-1] != x2.shape[-2 if x2.ndim > 1 else 0]:
        expected = "lhs.shape[-1] == rhs.shape[-2]"
        fix = "Transpose an operand, or check the feature size."
        raise ShapeError("matmul", expected, f"{x1.shape} and {x2.shape}", fix)
    row, column = x1.ndim == 1, x2.ndim == 1
    x1 = reshape(x1, (1, *x1.shape)) if row else x1
    x2 = reshape(x2, (*x2.shape, 1)) if column else x2
    out = stacked_product(x1, x2)
    if row or column:
        shape = out.shape[:-2] + (() if row else out.shape[-2:-1])
        out = reshape(out, shape + (() if column else out.shape[-1:]))
    return out


def stacked_product(x1: "Tensor", x2: "Tensor") -> "Tensor":
    if x2.ndim == 2:
        if x1.ndim == 2:
            return cards.matmul(x1, x2)
        rows = reshape(x1, (math.prod(x1.shape[:-1]), x1.shape[-1]))
        return reshape(cards.matmul(rows, x2), (*x1.shape[:-1], x2.shape[-1]))
    stack = broadcast_shapes("matmul", x1.shape[:-2], x2.shape[:-2])
    return cards.matmul(*(broadcast_to(x, stack + x.shape[-2:]) for x in (x1, x2)))


@composed
def vecdot(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Any:
    """The sum of conj(x1) · x2 over one axis.

    Shapes: (*a, n, *b), (*a, n, *b), broadcast but for the axis -> (*a, *b).
    Raises: ShapeError if the sizes along `axis` differ.
    """
    x1, x2 = promoted("vecdot", x1, x2)
    if axis >= 0 and x1.ndim != x2.ndim:
        fix = "Count the axis from the end, as the Array API does, or broadcast them first."
        raise OptionError("vecdot", "a negative axis for operands of unlike ranks", axis, fix)
    axis = check_axis("vecdot", axis, min(x1.ndim, x2.ndim)) - min(x1.ndim, x2.ndim)
    if x1.shape[axis] != x2.shape[axis]:
        expected = f"equal sizes along axis {axis}"
        raise ShapeError("vecdot", expected, f"{x1.shape} and {x2.shape}", "Slice one of them.")
    moved = [move_axes(x, (x.ndim + axis,), (x.ndim - 1,)) for x in (conj(x1), x2)]
    stack = broadcast_shapes("vecdot", *(x.shape[:-1] for x in moved))
    n = x1.shape[axis]
    left, right = (broadcast_to(x, (*stack, n)) for x in moved)
    product = cards.matmul(reshape(left, (*stack, 1, n)), reshape(right, (*stack, n, 1)))
    return reshape(product, stack)


@composed
def tensordot(x1: ArrayLike, x2: ArrayLike, /, *, axes: int = 2) -> Any:
    """The sum of products over pairs of axes: the last `axes` of x1 with the first of x2.
    `axes` may be two lists instead: the axes of x1, and those of x2 they are summed with.

    Shapes: the others of x1, then of x2.
    Raises: ShapeError if the summed sizes or numbers of axes differ.
    Example:
        >>> tensordot(as_value([[1, 2]]), as_value([[3], [4]]), axes=1).tolist()
        [[11]]
    """
    x1, x2 = promoted("tensordot", x1, x2)
    first, second = summed_axes(x1, x2, axes)
    sizes = [x1.shape[a] for a in first]
    if sizes != [x2.shape[a] for a in second]:
        got = f"{x1.shape} along {first} and {x2.shape} along {second}"
        raise ShapeError("tensordot", "equal sizes on the summed axes", got, "Check the axes.")
    rest1 = [a for a in range(x1.ndim) if a not in first]
    rest2 = [a for a in range(x2.ndim) if a not in second]
    shape1, shape2 = (tuple(x.shape[a] for a in r) for x, r in ((x1, rest1), (x2, rest2)))
    k = math.prod(sizes)
    left = reshape(permute(x1, axes=(*rest1, *first)), (math.prod(shape1), k))
    right = reshape(permute(x2, axes=(*second, *rest2)), (k, math.prod(shape2)))
    return reshape(cards.matmul(left, right), shape1 + shape2)


def summed_axes(x1: "Tensor", x2: "Tensor", axes: int) -> Any:
    if isinstance(axes, int):
        if not 0 <= axes <= min(x1.ndim, x2.ndim):
            got = f"{axes} for shapes {x1.shape} and {x2.shape}"
            fix = "Sum over fewer axes."
            raise ShapeError("tensordot", f"axes from 0 to {min(x1.ndim, x2.ndim)}", got, fix)
        return list(range(x1.ndim - axes, x1.ndim)), list(range(axes))
    first, second = ([a] if isinstance(a, int) else list(a) for a in axes)
    if len(first) != len(second):
        fix = "Pair them."
        raise ShapeError("tensordot", "as many axes of x1 as of x2", f"{first} and {second}", fix)
    pairs = ((first, x1), (second, x2))
    return [[check_axis("tensordot", a, x.ndim) for a in axes] for axes, x in pairs]


@composed
def outer(x1: ArrayLike, x2: ArrayLike, /) -> "Tensor":
    """Products of all elements of x1 with all of x2, flattened: (m,), (n,) -> (m, n)."""
    x1, x2 = promoted("outer", x1, x2)
    return reshape(x1, (x1.size, 1)) * reshape(x2, (1, x2.size))


@composed
def inner(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """The sum of products over the last axes.

    Shapes: (*a, n), (*b, n) -> (*a, *b).
    Raises: ShapeError if the last sizes differ.
    """
    x1, x2 = promoted("inner", x1, x2)
    return x1 * x2 if not x1.ndim or not x2.ndim else tensordot(x1, x2, axes=([-1], [-1]))


def kron(x1: ArrayLike, x2: ArrayLike, /) -> Any:
    """The Kronecker product, x2 scaled by every element of x1: (*m), (*n) -> (*(m · n)).

    Example:
        >>> kron(as_value([1, 2]), as_value([1, 1])).tolist()
        [1, 1, 2, 2]
    """
    x1, x2 = promoted("kron", x1, x2)
    ndim = max(x1.ndim, x2.ndim)
    s1, s2 = ((1,) * (ndim - x.ndim) + x.shape for x in (x1, x2))
    left = reshape(x1, tuple(n for s in s1 for n in (s, 1)))
    right = reshape(x2, tuple(n for s in s2 for n in (1, s)))
    return reshape(left * right, tuple(a * b for a, b in zip(s1, s2, strict=True)))


@composed
def einsum(subscripts: str, /, *operands: Any) -> Any:
    """Einstein's sum: axes with one letter are multiplied together, those not in the result summed.
    `"ij,jk->ik"` is a matrix product; without `->` the letters that occur once are the result, in
    alphabetical order; `...` stands for axes that broadcast. Pairs are contracted cheapest first.

    Raises: ShapeError if sizes of a letter differ, OptionError for subscripts that do not parse.
    Example:
        >>> einsum("ij,j->i", as_value([[1, 2], [3, 4]]), as_value([1, 1])).tolist()
        [3, 7]
    """
    check_type("einsum", subscripts, str, "subscripts as a string first", "Write 'ij,jk->ik'.")
    values = promoted("einsum", *operands) if operands else []
    terms, result = parse_subscripts(subscripts, values)
    sizes = letter_sizes(subscripts, terms, values)
    pool = [diagonal(term, x) for term, x in zip(terms, values, strict=True)]
    pool = [(t, broadcast_to(x, tuple(sizes[letter] for letter in t))) for t, x in pool]
    while len(pool) > 1:
        i, j = cheapest_pair(pool, sizes)
        (t2, x2), (t1, x1) = pool.pop(j), pool.pop(i)
        output_letters = set(result).union(*(t for t, _ in pool)) if pool else set(result)
        pool.append(contract_pair(t1, x1, t2, x2, output_letters, sizes))
    term, x = sum_alone(*pool[0], result)
    return permute(x, axes=tuple(term.index(letter) for letter in result))


def parse_subscripts(subscripts: str, values: Any) -> Any:
    """The letters of each operand and of the result; broadcast axes get the letters 0, 1 …"""
    left, arrow, right = subscripts.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(values):
        fix = "Give one operand per comma-separated term."
        raise OptionError("einsum", f"{len(terms)} operands for {subscripts!r}", len(values), fix)
    rest = [x.ndim - len(t.replace("...", "")) for t, x in zip(terms, values, strict=True)]
    widest = max((r for t, r in zip(terms, rest, strict=True) if "..." in t), default=0)
    dots = [str(i) for i in range(widest)]
    operand_letters = []
    for term, r, x in zip(terms, rest, values, strict=True):
        if r < 0 or (r and "..." not in term):
            expected = f"{term!r} to name every axis of its operand"
            fix = "Use one letter per axis, or '...'."
            raise ShapeError("einsum", expected, f"shape {x.shape}", fix)
        head, _, tail = term.partition("...")
        operand_letters.append([*head, *(dots[widest - r :] if "..." in term else ()), *tail])
    letters = [letter for term in operand_letters for letter in term]
    if arrow:
        head, ellipsis, tail = right.partition("...")
        result = [*head, *(dots if ellipsis else ()), *tail]
    else:
        result = dots + sorted(c for c in set(letters) if letters.count(c) == 1 and c.isalpha())
    wrong = [c for c in result if c not in letters or result.count(c) > 1]
    wrong += [c for c in letters if not (c.isalpha() or c in dots)]
    if wrong:
        expected = "letters, and a result that names each at most once"
        fix = "Check the subscripts."
        raise OptionError("einsum", expected, f"{wrong[0]!r} in {subscripts!r}", fix)
    return operand_letters, result


def letter_sizes(subscripts: str, terms: Any, values: Any) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for term, x in zip(terms, values, strict=True):
        for letter, size in zip(term, x.shape, strict=True):
            earlier = sizes.setdefault(letter, size)
            if earlier == 1:
                sizes[letter] = size
            elif size not in (earlier, 1):
                expected = f"one size for {letter!r} in {subscripts!r}"
                fix = "Check the operands' shapes."
                raise ShapeError("einsum", expected, f"{earlier} and {size}", fix)
    return sizes


def diagonal(term: Any, x: "Tensor") -> Any:
    """The operand with each letter once: equal letters walk down a diagonal."""
    term = list(term)
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            i, j = [k for k, c in enumerate(term) if c == letter][:2]
            n = x.shape[i]
            order = [k for k in range(x.ndim) if k not in (i, j)] + [i, j]
            x = permute(x, axes=tuple(order))
            x = section(reshape(x, (*x.shape[:-2], n * n)), x.ndim - 2, 0, n * n, n + 1)
            term = [c for k, c in enumerate(term) if k not in (i, j)] + [letter]
    return term, x


def cheapest_pair(pool: Any, sizes: Any) -> tuple[int, int]:
    pairs = [(i, j) for i in range(len(pool)) for j in range(i + 1, len(pool))]
    return min(pairs, key=lambda p: math.prod(sizes[c] for c in {*pool[p[0]][0], *pool[p[1]][0]}))


def contract_pair(t1: Any, x1: Any, t2: Any, x2: Any, output_letters: Any, sizes: Any) -> Any:
    """The product of two operands as stacks of matrices, letters not `output_letters` summed."""
    t1, x1 = sum_alone(t1, x1, output_letters | set(t2))
    t2, x2 = sum_alone(t2, x2, output_letters | set(t1))
    shared = [c for c in t1 if c in t2]
    stack = [c for c in shared if c in output_letters]
    summed = [c for c in shared if c not in output_letters]
    rows = [c for c in t1 if c not in shared]
    columns = [c for c in t2 if c not in shared]

    def size(letters):
        return math.prod(sizes[c] for c in letters)

    def arranged(term, x, *groups):
        order = tuple(term.index(c) for group in groups for c in group)
        lead = tuple(sizes[c] for c in stack)
        return reshape(permute(x, axes=order), (*lead, *(size(g) for g in groups[1:])))

    left = arranged(t1, x1, stack, rows, summed)
    right = arranged(t2, x2, stack, summed, columns)
    # Where nothing is summed, matrices (…, m, 1) and (…, 1, n) multiply element by element.
    product = cards.matmul(left, right) if summed else left * right
    letters = [*stack, *rows, *columns]
    return letters, reshape(product, tuple(sizes[c] for c in letters))


def sum_alone(term: Any, x: "Tensor", needed: Any) -> Any:
    """The operand with letters that nobody else needs summed at once."""
    axes = tuple(i for i, c in enumerate(term) if c not in needed)
    return [c for c in term if c in needed], sum_(x, axes=axes) if axes else x
