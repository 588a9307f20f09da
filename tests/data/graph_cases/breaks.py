"""Breaks: branches on tensors, calls that Python makes, what is live across them."""

import itertools
import math

import xp

from . import built, built_of, case, case_of, ints, t


def unsupported(x):
    xp.graph_break()
    return x + 1


@xp.disable
def opaque(x):
    return x * 2


def helper(x):
    return xp.sin(x) * 2


@case_of((t(3), t(3)), (t(3), t(3)))
def branch_on_a_tensor(a, b):
    x = a / (xp.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


@built_of(*[((sign,)) for sign in (1, -1, 1, -1)])
def both_branches():
    def fn(sign):
        x = xp.ones(3) * sign
        if x.sum() > 0:
            return x + 1
        return x - 1

    return fn


@built_of((1,), (-1,), (1,), (-1,))
def two_branches_in_a_row():
    def fn(sign):
        x = xp.ones(3) * sign
        if x.sum() > 0:
            x = x + 1
        x = x * 2
        if x.sum() > 3:
            x = x - 1
        return x * 3

    return fn


@built_of((1,), (-1,), (2,), (-2,))
def four_branches_in_a_row():
    def fn(sign):
        x = xp.ones(3) * sign
        if x.sum() > 0:
            x = x + 1
        if x.sum() > 3:
            x = x - 1
        if x.sum() > 4:
            x = x * 2
        if x.sum() > 5:
            x = x / 2
        return x * 3

    return fn


@case(t(3))
def nested_branches(x):
    if x.sum() > -100:
        x = x + 1
        x = x * 2 if x.mean() > -100 else x * 3
    return x - 1


@case(t(3))
def branch_with_return_inside(x):
    y = x * 2
    if y.sum() > -100:
        return xp.sin(y)
    return xp.cos(y)


@case(t(3))
def branch_in_an_inlined_call(x):
    def inner(y):
        if y.sum() > -100:
            return y + 1
        return y - 1

    return inner(x * 2) * 3


@case(t(3))
def while_on_a_tensor(x):
    x = xp.abs(x) + 1
    while x.sum() < 40:
        x = x * 2
    return x + 1


@case(t(3))
def boolean_operators_on_tensors(x):
    if x.sum() > -100 and x.mean() > -100:
        return x + 1
    return x - 1


@case(t(3))
def not_of_a_tensor(x):
    return x + 1 if not x.sum() > 100 else x


@case(t(3))
def assertion_on_a_tensor(x):
    y = x + 1
    assert (y > -100).all()
    return y * 2


@case(t(3))
def explicit_break(x):
    x = x + 1
    xp.graph_break()
    return x * 2


@case(t(3))
def explicit_breaks(x):
    for _ in range(3):
        x = xp.sin(x)
        xp.graph_break()
    return x


@case(t(3))
def break_before_anything(x):
    xp.graph_break()
    return x * 2


@case(t(3))
def break_behind_everything(x):
    x = x * 2
    xp.graph_break()
    return x


@case(t(3))
def break_inside_an_inlined_call(x):
    return unsupported(x * 2) * 3


@case(t(3))
def break_inside_two_inlined_calls(x):
    def through(y):
        return unsupported(y + 1) - 1

    return through(x * 2) * 3


@case(t(3))
def break_in_a_lambda(x):
    return (lambda y: unsupported(y) * 2)(x + 1)


@case(t(3))
def disabled_function(x):
    return opaque(x + 1) + 1


@case(t(3))
def disabled_function_twice(x):
    return opaque(opaque(x + 1) - 1) + 1


@case(t(3))
def disabled_function_in_an_expression(x):
    return x + opaque(x * 3) * helper(x)


@case(t(3))
def disabled_function_gives_numbers(x):
    return x * number_of(x) + 1


@xp.disable
def number_of(x):
    return 3


@case(t(3))
def prints(x):
    x = x + 1
    print("", end="")
    return x * 2


@case(t(3))
def reads_an_item(x):
    n = x.sum().item()
    return x * n


@case(t(3))
def reads_an_item_and_drops_it(x):
    x.sum().item()
    return x * 2


@case(t(3))
def float_of_a_tensor(x):
    return x * float(x.sum())


@case(ints(3), t(3))
def integer_of_a_tensor(i, x):
    return x * int(i.sum())


@case(t(3))
def list_of_a_tensor(x):
    return x * len((x * 2).tolist())


@case(t(3))
def numbers_of_a_tensor_in_mathematics(x):
    return x * math.floor(abs((x * 2).sum().item()))


@case(t(3))
def item_in_a_loop(x):
    for _ in range(2):
        x = x + x.sum().item()
    return x


@case(t(4))
def indices_of_what_is_not_zero(x):
    y = x + 1
    return xp.nonzero(y)[0] + 1


@case(t(4))
def mask_index(x):
    y = x * 2
    return y[y > 0] + 1


@case(t(4))
def index_by_an_item(x):
    i = xp.argmax(x).item()
    return x[i] * 2


# -- what is live ----------------------------------------------------------------------------------


@case(t(3))
def stack_across_a_break(x):
    return x + xp.sin(x) * opaque(x) - 1


@case(t(3))
def nested_stack_across_a_break(x):
    return (x + 1) * (xp.cos(x) - (x * opaque(x) + 2))


@case(t(3))
def call_arguments_across_a_break(x):
    return xp.where(x > 0, helper(x), opaque(x)) + 1


@case(t(3))
def list_under_construction_across_a_break(x):
    return sum([x, opaque(x), x * 2])


@case(t(3))
def dict_under_construction_across_a_break(x):
    return {"a": x + 1, "b": opaque(x), "c": x * 2}


@case(t(3))
def locals_across_a_break(x):
    a, b, c = x + 1, [x * 2], {"k": x * 3}
    xp.graph_break()
    return a + b[0] + c["k"]


@case(t(3))
def numbers_across_a_break(x):
    n, name, flag = 3, "abc", True
    x = x + n
    xp.graph_break()
    return x * n + len(name) if flag else x


@case(t(3))
def range_across_a_break(x):
    r = range(3)
    x = x + 1
    xp.graph_break()
    for i in r:
        x = x + i
    return x


@case(t(3))
def range_iterator_across_a_break(x):
    it = iter(range(4))
    x = x + next(it)
    xp.graph_break()
    for i in it:
        x = x + i
    return x


@case([t(3), t(3), t(3)])
def list_iterator_across_a_break(xs):
    it = iter(xs)
    x = next(it) * 2
    xp.graph_break()
    return x + next(it) * next(it)


@case((t(3), t(3), t(3)))
def tuple_iterator_across_a_break(xs):
    it = iter(xs)
    x = next(it) * 2
    xp.graph_break()
    return x + sum(it)


@case((t(3), t(3)))
def tuple_iterator_is_returned(xs):
    it = iter(xs)
    x = next(it) * 2
    return x, list(it)


@case([t(3), t(3), t(3)])
def enumerate_across_a_break(xs):
    it = enumerate(xs)
    i, x = next(it)
    x = x * 2
    xp.graph_break()
    for i, y in it:
        x = x + y * i
    return x


@case([t(3), t(3)], [t(3), t(3)])
def zip_across_a_break(xs, ys):
    it = zip(xs, ys, strict=False)
    a, b = next(it)
    x = a * b
    xp.graph_break()
    for a, b in it:
        x = x + a * b
    return x


@case({"a": t(3), "b": t(3)})
def dict_iterator_across_a_break(d):
    x = 0
    for key, value in d.items():
        x = x + value * len(key)
        xp.graph_break()
    return x * 2


@case([t(3), t(3), t(3)])
def loop_over_a_list_with_a_break(xs):
    total = 0
    for x in xs:
        total = total + x * 2
        xp.graph_break()
    return total * 2


@case(t(3))
def loop_over_a_range_with_a_break(x):
    for i in range(3):
        x = x + i
        xp.graph_break()
    return x * 2


@case(t(3))
def nested_loops_with_a_break(x):
    for i in range(2):
        for j in range(2):
            x = x + i * j
            xp.graph_break()
        x = x * 2
    return x


@case(t(3))
def map_across_a_break(x):
    it = map(helper, [x, x + 1])
    y = next(it)
    xp.graph_break()
    return y + next(it)


@case(t(3))
def chain_across_a_break(x):
    it = itertools.chain([1, 2], [3])
    x = x + next(it)
    xp.graph_break()
    return x * next(it) + next(it)


@case(t(3))
def count_across_a_break(x):
    it = itertools.count(2)
    x = x + next(it)
    xp.graph_break()
    return x * next(it)


@case(t(3))
def pop_behind_a_break(x):
    xs = [x + 1, x + 2]
    xp.graph_break()
    return xs.pop() * xs.pop()


@case(t(3))
def closure_across_a_break(x):
    factor = 3

    def inner(y):
        return y * factor

    x = inner(x)
    xp.graph_break()
    return inner(x) + 1


@case(t(3))
def cell_is_written_across_a_break(x):
    count = 0

    def inner():
        nonlocal count
        count += 1

    inner()
    x = x + count
    xp.graph_break()
    inner()
    return x * count


@built(t(3))
def free_variable_across_a_break():
    weight = xp.ones(3)

    def fn(x):
        x = x + weight
        xp.graph_break()
        return x * weight

    return fn


@case(t(3))
def object_across_a_break(x):
    class_of = type("Holder", (), {})
    holder = class_of()
    holder.x = x
    xp.graph_break()
    return x + 1


class Holder:
    def __init__(self, x):
        self.x = x


@case(t(3))
def new_object_across_a_break(x):
    holder = Holder(x + 1)
    xp.graph_break()
    return holder.x * 2


@case(t(3))
def generator_with_a_break(x):
    def parts(y):
        yield y + 1
        xp.graph_break()
        yield y * 2

    return sum(parts(x))


@case(t(3))
def comprehension_with_a_break(x):
    return sum([unsupported(x * i) for i in range(2)])


# -- with, try -------------------------------------------------------------------------------------


@case(t(3))
def no_grad(x):
    with xp.no_grad():
        y = x * 2
    return y + 1


@case(t(3))
def no_grad_across_a_break(x):
    with xp.no_grad():
        y = x * 2
        xp.graph_break()
        y = y + 1
    return y * 3


@case(t(3))
def no_grad_across_two_breaks(x):
    with xp.no_grad():
        y = x * 2
        xp.graph_break()
        y = y + 1
        xp.graph_break()
        y = y - 1
    return y * 3


@case(t(3))
def nested_no_grad_across_a_break(x):
    with xp.no_grad():
        y = x * 2
        with xp.enable_grad():
            y = y + x
            xp.graph_break()
            y = y * 2
        y = y + 1
    return y * 3


@case(t(3))
def no_grad_around_a_call_with_a_break(x):
    with xp.no_grad():
        y = unsupported(x * 2)
    return y * 3


@case(t(3))
def no_grad_around_a_disabled_call(x):
    with xp.no_grad():
        y = opaque(x * 2) + 1
    return y * 3


@case(t(3))
def no_grad_around_a_branch(x):
    with xp.no_grad():
        if x.sum() > -100:
            x = x + 1
    return x * 3


@case(t(3))
def grad_mode_is_asked_across_a_break(x):
    with xp.no_grad():
        x = x + (1 if xp.is_grad_enabled() else 2)
        xp.graph_break()
        x = x + (1 if xp.is_grad_enabled() else 2)
    return x + (1 if xp.is_grad_enabled() else 2)


@case(t(3))
def grad_mode_is_set(x):
    with xp.set_grad_enabled(False):
        x = x + 1
    with xp.set_grad_enabled(True):
        return x * 2


@built(t(3))
def no_grad_as_a_decorator():
    @xp.no_grad()
    def inner(x):
        return x * 2

    return lambda x: inner(x + 1) + 1


class Manager:
    """A context manager of the user's."""

    def __init__(self):
        self.depth = 0

    def __enter__(self):
        self.depth += 1
        return self

    def __exit__(self, *error):
        self.depth -= 1


@case(t(3))
def own_context_manager(x):
    with Manager() as manager:
        x = x + manager.depth
    return x * 2 + manager.depth


@built(t(3))
def own_context_manager_from_outside():
    manager = Manager()

    def fn(x):
        with manager:
            x = x + manager.depth
        return x * 2

    return fn


@case(t(3))
def try_without_an_error(x):
    try:
        x = x + 1
    except ValueError:
        x = x - 1
    return x * 2


@case(t(3))
def try_with_finally(x):
    try:
        x = x + 1
    finally:
        y = x * 2
    return y + 1


@case(t(3))
def error_is_caught(x):
    try:
        raise ValueError("no")
    except ValueError as error:
        return x + len(error.args)


@case(t(3))
def error_from_an_inlined_call(x):
    def failing(y):
        if y.ndim == 1:
            raise KeyError("one")
        return y

    try:
        return failing(x)
    except KeyError:
        return x * 2


@case(t(3))
def lookup_error_is_caught(x):
    try:
        return x * {"a": 1}["b"]
    except KeyError:
        return x * 3


@case(t(3))
def attribute_error_is_caught(x):
    try:
        return x.nothing
    except AttributeError:
        return x * 3


@case(t(3))
def break_inside_try(x):
    try:
        x = x + 1
        xp.graph_break()
        x = x * 2
    except ValueError:
        x = x - 1
    return x * 3


@case(t(3))
def break_inside_finally(x):
    try:
        x = x + 1
    finally:
        xp.graph_break()
        x = x * 2
    return x * 3


@case(t(3))
def break_inside_except(x):
    try:
        raise ValueError
    except ValueError:
        x = x + 1
        xp.graph_break()
        x = x * 2
    return x * 3


@case(t(3))
def raises_to_the_caller(x):
    x = x + 1
    raise RuntimeError("always")


@case(t(3))
def raises_by_rank(x):
    if x.ndim > 3:
        raise ValueError(f"{x.ndim} axes")
    return x * 2


# -- converging paths ------------------------------------------------------------------------------


@built_of((1,), (-1,), (1,), (-1,))
def paths_that_join():
    def fn(sign):
        x = xp.ones(3) * sign
        if x.sum() > 0:
            y = x + 1
        else:
            y = x - 1
        return y * 2 + x

    return fn


@built_of((1,), (-1,), (1,), (-1,))
def paths_that_join_around_a_break():
    def fn(sign):
        x = xp.ones(3) * sign
        if x.sum() > 0:
            xp.graph_break()
            y = x + 1
        else:
            y = x - 1
        return y * 2 + x

    return fn


@built_of((True,), (False,), (True,), (False,))
def branch_on_an_argument_behind_a_break():
    def fn(flag):
        x = xp.ones(3) + 1
        xp.graph_break()
        return x * 2 if flag else x * 3

    return fn


@built_of((2,), (3,), (4,), (5,))
def number_across_a_break():
    def fn(n):
        x = xp.ones(3) * n
        xp.graph_break()
        return x + n

    return fn


@case_of((t(2),), (t(3),), (t(4),), (t(5),))
def sizes_across_a_break(x):
    y = x * 2
    xp.graph_break()
    return y + x.shape[0]


@case(t(3))
def many_constants(x):
    for n in (1.5, 2.5, 3.5):
        x = x * n
        if x.sum() < -1000:
            x = x - n
    return x


@case(t(3))
def break_through_a_method(x):
    class_instance = Breaking(3)
    return class_instance.apply(x) * 2


class Breaking:
    def __init__(self, by):
        self.by = by

    def apply(self, x):
        x = x * self.by
        xp.graph_break()
        return x + self.by


class BreakingModule(xp.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = xp.nn.Linear(3, 3), xp.nn.Linear(3, 3)

    def forward(self, x):
        x = self.a(x)
        xp.graph_break()
        return self.b(x)


@built(t(2, 3))
def break_inside_a_module():
    return BreakingModule()


@built(t(2, 3))
def break_inside_submodules():
    return xp.nn.Sequential(BreakingModule(), BreakingModule())


@built(t(2, 3))
def branch_inside_a_module():
    class Branching(xp.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = xp.nn.Linear(3, 3), xp.nn.Linear(3, 3)

        def forward(self, x):
            return self.a(x) if x.sum() > -100 else self.b(x)

    return Branching()


@built(t(2, 3))
def disabled_method_of_a_module():
    class Partly(xp.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = xp.nn.Linear(3, 3)

        @xp.disable
        def opaque(self, x):
            return x * 2

        def forward(self, x):
            return self.opaque(self.linear(x)) + 1

    return Partly()
