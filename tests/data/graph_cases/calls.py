"""Calls, closures, inlining, unpacking."""

import functools
import inspect
import operator
from collections.abc import Callable

import xp

from . import built, case, case_of, t

OFFSET = 5
WIDTHS = {"narrow": 2, "wide": 7}


def double(x):
    return x * 2


def scaled(x, factor=3.0, *, shift=0.5):
    return x * factor + shift


def outer_then(x, fn):
    return fn(xp.sin(x))


def pair_of(x):
    return xp.cos(x), xp.sin(x)


def collected(*args, **words):
    total = args[0]
    for other in args[1:]:
        total = total + other
    for name in sorted(words):
        total = total * words[name]
    return total


@case(t(3), t(3))
def adds(x, y):
    return x + y


@case(t(3))
def calls_one_function(x):
    return double(x) + 1


@case(t(3))
def calls_through_another(x):
    return outer_then(x, double)


@case(t(3))
def calls_with_defaults(x):
    return scaled(x) - scaled(x, 2.0) + scaled(x, shift=1.0)


@case(t(3))
def passes_a_lambda(x):
    return outer_then(x, lambda y: y - 1)


@case(t(3))
def makes_an_inner_function(x):
    def inner(y):
        return y + x

    return inner(xp.cos(x))


@case(t(3))
def inner_function_with_default(x):
    def inner(y, by=2):
        return y**by

    return inner(x) + inner(x, 3)


@built(t(3))
def closes_over_a_number():
    factor = 4

    def fn(x):
        return x * factor

    return fn


@built(t(3))
def closes_over_a_tensor():
    weight = xp.ones(3)

    def fn(x):
        return x * weight + 1

    return fn


@built(t(3))
def closes_over_a_function():
    def helper(y):
        return xp.exp(y)

    def fn(x):
        return helper(x) + helper(x + 1)

    return fn


@case(t(3))
def writes_a_nonlocal(x):
    count = 0

    def inner(y):
        nonlocal count
        count += 1
        return y + count

    x = inner(x)
    x = inner(x)
    return x * count


@built(t(3))
def writes_an_outer_cell():
    state = 0.0

    def fn(x):
        nonlocal state
        state = 2.0
        return x + state

    return fn


@case(t(3))
def three_nested_closures(x):
    def first(y):
        def second(z):
            def third(u):
                return u + x + y

            return third(z) * 2

        return second(y + 1)

    return first(xp.sin(x))


@case(t(3))
def returns_a_closure_and_calls_it(x):
    def maker(by):
        def inner(y):
            return y * by

        return inner

    return maker(2)(x) + maker(3)(x)


@case(t(3))
def reads_a_global(x):
    return x + OFFSET


@case(t(3))
def reads_a_global_dict(x):
    return x * WIDTHS["wide"]


@case(t(3))
def global_function_by_name(x):
    return globals()["double"](x)


@case(t(3))
def packs_arguments(x):
    return collected(x, x + 1, scale=2, more=3)


@case(t(3))
def unpacks_a_list_of_arguments(x):
    inputs = [x, x * 2, x * 3]
    return collected(*inputs)


@case(t(3))
def unpacks_keywords(x):
    words = {"factor": 2.0, "shift": 1.0}
    return scaled(x, **words)


@case(t(3))
def unpacks_both(x):
    return collected(*(x, x), *[x], a=2, b=3)


@case(t(2, 3))
def unpacks_a_tensor(x):
    first, second = x
    return first + second


@case(t(3))
def unpacks_a_tuple(x):
    cos, sin = pair_of(x)
    return cos - sin


@case(t(3))
def unpacks_with_star(x):
    first, *middle, last = [x, x + 1, x + 2, x + 3]
    return first * last + sum(middle)


@case(t(3))
def unpacks_nested(x):
    (a, (b, c)), d = (x, (x + 1, x + 2)), x * 4
    return a + b * c - d


@case(t(3))
def swaps(x):
    y = x + 1
    x, y = y, x
    return x - 2 * y


@case(t(3))
def partial_of_a_function(x):
    fn = functools.partial(scaled, factor=5.0)
    return fn(x) + fn(x, shift=2.0)


@built(t(3))
def partial_from_outside():
    fn = functools.partial(scaled, shift=-1.0)

    def call(x):
        return fn(x) * 2

    return call


@built(t(3))
def wrapped_function():
    def twice(fn):
        @functools.wraps(fn)
        def inner(*args):
            return fn(*args) + fn(*args)

        return inner

    @twice
    def fn(x):
        return xp.tanh(x)

    return fn


@case(t(3))
def reduces_with_operator(x):
    return functools.reduce(operator.add, [x, x * 2, x * 3])


@case(t(3))
def reduces_with_start(x):
    return functools.reduce(lambda a, b: a * b, [x, x + 1], x - 1)


@case(t(3))
def maps_a_function(x):
    return sum(map(double, [x, x + 1, x + 2]))


@case(t(3))
def filters_numbers(x):
    for n in filter(lambda n: n % 2, range(5)):
        x = x + n
    return x


@case_of((t(3), True), (t(3), False), (t(3), True), (t(3), False))
def takes_a_flag(x, flag):
    if flag:
        return x + 1
    return x - 1


@case_of((t(3), None), (t(3), t(3)), (t(3), None))
def takes_an_optional_tensor(x, other):
    if other is None:
        return x * 2
    return x + other


@case_of((t(3), "relu"), (t(3), "tanh"), (t(3), "relu"))
def takes_a_name(x, name):
    return xp.nn.functional.relu(x) if name == "relu" else xp.tanh(x)


@case(t(3))
def keyword_only(x):
    def inner(y, *, by, plus=1):
        return y * by + plus

    return inner(x, by=3)


@case(t(3))
def positional_only(x):
    def inner(y, by, /, plus=1):
        return y * by + plus

    return inner(x, 3, plus=4)


@case(t(3))
def recursion_by_number(x):
    def power(y, n):
        return y if n == 1 else y * power(y, n - 1)

    return power(x, 4)


@case([t(3), [t(3), {"a": t(3)}]])
def recursion_over_containers(tree):
    def total(part):
        if isinstance(part, dict):
            return sum(total(v) for v in part.values())
        if isinstance(part, (list, tuple)):
            return sum(map(total, part))
        return xp.sin(part)

    return total(tree)


@case(t(3))
def a_method_of_the_tensor_type(x):
    return xp.Tensor.sin(x) + xp.Tensor.abs(x)


@case(t(3))
def a_bound_method_of_a_tensor(x):
    sin = x.sin
    return sin() + sin()


@case(t(3))
def operators_as_functions(x):
    return operator.mul(operator.add(x, 1), operator.neg(x))


@case(t(3))
def item_getter(x):
    return operator.itemgetter(1)([x, x + 1]) * 2


@case(t(3))
def attribute_getter(x):
    return x * operator.attrgetter("ndim")(x)


@case(t(3))
def dunder_called_inside(x):
    return x.__add__(1).__mul__(x).__neg__()


@case(t(3))
def reflected_dunder_called_inside(x):
    return x.__radd__(2) - x.__rsub__(1)


@case(t(3))
def annotated_locals(x):
    y: xp.Tensor = x + 1
    count: int = 3
    z: xp.Tensor | None = None
    if z is None:
        z = y * count
    return z


@case(t(3))
def annotated_inner_function(x):
    def inner(y: xp.Tensor, by: int = 2, *more: float, **words: str) -> xp.Tensor:
        return y * by

    return inner(x) + 1


@case(t(3))
def annotated_with_subscripts(x):
    def inner(y: list[xp.Tensor], fn: Callable[[xp.Tensor], xp.Tensor]) -> dict[str, xp.Tensor]:
        return {"out": fn(y[0])}

    return inner([x], xp.sin)["out"]


@case(t(3))
def signature_of_a_function(x):
    names = list(inspect.signature(scaled).parameters)
    return x * len(names)


@case(t(3))
def signature_decides_what_is_passed(x):
    options = {"factor": 2.0, "unknown": 9.0}
    words = {k: v for k, v in options.items() if k in inspect.signature(scaled).parameters}
    return scaled(x, **words)


@case(t(3))
def signature_default_is_used(x):
    default = inspect.signature(scaled).parameters["factor"].default
    return x * default


@case(t(3))
def imports_a_module_inside(x):
    import math

    return x * math.pi


@case(t(3))
def imports_from_inside(x):
    from math import sqrt

    return x * sqrt(4.0)


@case(t(3))
def imports_a_submodule_inside(x):
    import collections.abc

    return x + 1 if isinstance([], collections.abc.Sequence) else x


@case(t(3))
def relative_import_of_a_name(x):
    from .helpers import shifted

    return shifted(x)


@case(t(3))
def relative_import_of_a_module(x):
    from . import helpers

    return helpers.shifted(x) * helpers.SCALE


@case(t(3))
def relative_import_under_another_name(x):
    from .helpers import SCALE as factor
    from .helpers import shifted as move

    return move(x) * factor


@case(t(3))
def callable_is_asked(x):
    fn = double
    return fn(x) if callable(fn) and not callable(x.shape) else x


@case(t(3))
def function_attributes(x):
    return x + len(double.__name__) if double.__doc__ is None else x


@case(t(3))
def conditional_expression(x):
    return (x if x.ndim == 1 else x[0]) + (1 if isinstance(x, xp.Tensor) else 2)


@case(t(3))
def chained_comparison_of_numbers(x):
    n = x.shape[0]
    return x * 2 if 1 < n <= 3 else x


@case(t(3))
def walrus(x):
    if (n := len(x)) > 2:
        return x * n
    return x


@case(t(3))
def keeps_many_locals(x):
    a = x + 1
    b = a * 2
    c = b - a
    d = xp.sin(c)
    e = d + b
    f = e * a
    return a + b + c + d + e + f


@case(t(3))
def closure_in_a_loop(x):
    fns = []
    for i in range(3):
        fns.append(lambda y, by=i: y * by)
    return fns[0](x) + fns[1](x) + fns[2](x)


@case(t(3))
def late_binding_in_a_loop(x):
    fns = [lambda y: y * i for i in range(3)]  # noqa: B023
    return fns[0](x) + fns[1](x)


@case(t(3))
def star_expression_in_return(x):
    rest = [x + 1, x + 2]
    return x, *rest


@case(t(4, 6))
def splits_heads(x):
    shape = (*x.shape[:-1], 2, x.shape[-1] // 2)
    return xp.transpose(x.reshape(shape), 0, 1)


@case(t(3))
def softmax_written_out(x):
    e = xp.exp(x - x.max())
    return e / e.sum()


@case(t(3))
def cached_function(x):
    return x * cached(3)


@functools.lru_cache
def cached(n):
    return n * n


@case(t(3))
def single_dispatch_by_hand(x):
    table = {xp.Tensor: double, int: abs}
    return table[type(x)](x) + table[int](-2)
