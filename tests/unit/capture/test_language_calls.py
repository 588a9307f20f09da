"""Captured functions as Python: calls, arguments, closures, nested functions, recursion."""
# ruff: noqa: B006, B023, F821, PIE804

import functools
import operator

import pytest
from checking import MODES, Cases, check

import glasshouse as gh

case = Cases()
X = gh.arange(6.0).reshape(2, 3)
Y = gh.ones((2, 3))


# -- arguments -------------------------------------------------------------------------------------


def plus(a, b=1, *rest, scale=2, **more):
    return (a + b) * scale + len(rest) + len(more)


def only_positional(a, b, /, c=3):
    return a - b * c


@case(X, Y, whole=True, modes=MODES)
def positional(a, b):
    return a * b + 1


@case(X, whole=True)
def default_is_used(a, b=3):
    return a + b


@case(X, whole=True)
def default_of_inlined(a):
    return plus(a) + plus(a, 5)


@case(X, whole=True)
def keyword_of_inlined(a):
    return plus(b=4, a=a, scale=3)


@case(X, whole=True)
def star_of_inlined(a):
    return plus(a, 1, 2, 3, other=4, more_=5)


@case(X, (1, 2), {"scale": 5}, whole=True)
def spread_arguments(a, items, words):
    return plus(a, *items, **words)


@case(X, [1, 2], [3], whole=True, modes=MODES)
def spread_several(a, items, others):
    return plus(a, *items, *others, 9, **{"k": 1}, **{"scale": 7})


@case(X, Y, Y, whole=True)
def star_parameter(*xs):
    return sum(xs), len(xs)


@case(X, kwargs={"k": Y, "m": 2}, whole=True)
def stars_parameter(x, **words):
    return {k: x + v for k, v in words.items()}, list(words)


@case(X, 1, 2, kwargs={"z": 3, "y": 4}, whole=True)
def all_kinds(a, /, b, *rest, y, z=1, **more):
    return a + b, rest, y, z, more


@case(X, kwargs={"flag": True}, whole=True)
def keyword_only(x, *, flag=False):
    return x if flag else -x


@case(X, whole=True)
def positional_only_call(x):
    return only_positional(x, 1), only_positional(x, 1, 2), only_positional(x, 1, c=0)


@case(X, line=True)
def too_many_arguments(x):
    return only_positional(x, 1, 2, 3)


@case(X, line=True)
def missing_argument(x):
    return only_positional(x)


@case(X, line=True)
def unexpected_keyword(x):
    return only_positional(x, 1, d=3)


@case(X)
def positional_only_by_keyword(x):
    return only_positional(x, b=1)


@case(X)
def argument_twice(x):
    return plus(x, a=x)


@case(X)
def keyword_twice(x):
    return plus(x, **{"scale": 1}, **{"scale": 2})


@case(X)
def star_of_non_iterable(x):
    return plus(*5)


@case(X)
def stars_of_non_mapping(x):
    return plus(x, **[1])


@case(X)
def stars_with_numbers(x):
    return plus(x, **{1: 2})


@case(X)
def call_of_a_number(x):
    five = 5
    return x + five(1)


@case(X, [], again=True, hit=False)
def mutable_default(x, out, value=[]):
    value.append(len(value))
    out.append(len(value) > 0)
    return x + 1


def grows(x, value=None):
    value = [] if value is None else value
    value.append(x)
    return value


@case(X, whole=True)
def fresh_default(x):
    return grows(x) + grows(x + 1)


@case(X, [1], whole=True)
def passes_list_on(x, items):
    return grows(x, items) is items


@case(X, whole=True)
def evaluation_order(x):
    log = []

    def note(v):
        log.append(v)
        return v

    plus(note(x), note(2), note(3), scale=note(4), k=note(5))
    return log


@case(X, (Y, 2), whole=True)
def unpack_pair(x, pair):
    a, b = pair
    return x * b + a


@case(X, [Y, 2, 3, 4], whole=True)
def unpack_star(x, items):
    a, *b, c = items
    return x + a, b, c


@case(X, ((1, 2), [3, (4, 5)]), whole=True)
def unpack_nested(x, tree):
    (a, b), [c, (d, e)] = tree
    return x * a + b * c + d - e


@case(X, [1, 2, 3])
def unpack_too_many(x, items):
    a, b = items
    return x + a + b


@case(X, [1])
def unpack_too_few(x, items):
    a, b = items
    return x + a + b


@case(X, [1])
def unpack_star_too_few(x, items):
    a, b, *c = items
    return x + a + b


@case(X, whole=True)
def unpack_tensor(x):
    a, b = x
    return a - b


@case(X, whole=True)
def unpack_shape(x):
    rows, columns = x.shape
    return x.reshape(columns, rows), rows * columns


@case(X, whole=True)
def unpack_string(x):
    a, b = "ab"
    return x, a + b


@case(X, {"p": 1, "q": 2}, whole=True)
def unpack_dict(x, d):
    a, b = d
    return x + d[a] - d[b], a


@case(X, whole=True)
def swap(x):
    a, b, c = x, x + 1, x + 2
    a, b, c = c, a, b
    return a, b, c


@case(X, [1, 2], (3,), whole=True)
def star_in_return(x, items, more):
    return x, *items, *more


@case(X, [1, 2], {3}, {"a": 1}, whole=True)
def star_in_displays(x, a, b, d):
    return [*a, x, *b], (*a, *d), {*a, *b}, {**d, "b": 2}


@case(X, [1, 2, 3], whole=True)
def chained_assignment(x, items):
    a = b = items
    a.append(4)
    return a is b, b


@case(X, [0, 1], whole=True)
def assign_in_order(x, items):
    i = 0
    i, items[i] = 1, 7
    return items, i


# -- functions that call functions -----------------------------------------------------------------


def twice(fn, x):
    return fn(fn(x))


def add_one(x):
    return x + 1


@case(X, whole=True, modes=MODES)
def function_as_argument(x):
    return twice(add_one, x)


@case(X, whole=True)
def lambda_as_argument(x):
    return twice(lambda v: v * 3, x)


@case(X, add_one, whole=True)
def user_function_argument(x, fn):
    return fn(x) * 2


@case(X, whole=True)
def builtin_as_argument(x):
    return twice(operator.neg, x), twice(abs, -3)


@case(X, whole=True)
def method_as_value(x):
    f = x.sum
    return f() + f()


@case(X, whole=True)
def unbound_method(x):
    return gh.Tensor.sum(x) + type(x).mean(x)


@case(X, whole=True)
def partial_call(x):
    f = functools.partial(plus, scale=3)
    g = functools.partial(f, x)
    return g(1), f(x, 2), g(1, scale=5)


@case(X, functools.partial(plus, b=7), whole=True)
def partial_argument(x, f):
    return f(x)


@case(X, whole=True)
def reduce_call(x):
    return functools.reduce(lambda a, b: a * b, [x, x + 1, 2])


@case(X, whole=True)
def operators_as_functions(x):
    return operator.add(x, 1), operator.itemgetter(1)(x), operator.mul(2, 3)


@case(X, whole=True)
def attribute_getter(x):
    return operator.attrgetter("shape")(x), operator.methodcaller("sum")(x)


def doubled(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        return fn(*args, **kwargs) * 2

    return inner


@doubled
def decorated(x, y=1):
    return x + y


@case(X, whole=True)
def calls_decorated(x):
    return decorated(x) + decorated(x, y=3)


@case(X, whole=True)
def decorates_inside(x):
    @doubled
    def f(v):
        """Doc."""
        return v - 1

    return f(x), f.__name__, f.__doc__


def scaled(by):
    def decorator(fn):
        def inner(x):
            return fn(x) * by

        return inner

    return decorator


@scaled(3)
@scaled(by=2)
def decorated_twice(x):
    return x + 1


@case(X, whole=True)
def calls_decorated_twice(x):
    return decorated_twice(x)


@functools.lru_cache
def cached(n):
    return n * 2


@case(X)
def calls_cached(x):
    return x + cached(3)


@functools.singledispatch
def kind(v):
    return "object"


@kind.register
def _(v: int):
    return "int"


@case(X)
def single_dispatch(x):
    return kind(3), kind("a"), x + 1


# -- recursion -------------------------------------------------------------------------------------


def power(x, n):
    return x if n == 1 else x * power(x, n - 1)


@case(X, 5, whole=True)
def recursion(x, n):
    return power(x, n)


def even(n):
    return True if n == 0 else odd(n - 1)


def odd(n):
    return False if n == 0 else even(n - 1)


@case(X, 6, whole=True)
def mutual_recursion(x, n):
    return x if even(n) else -x


def total(tree):
    return sum(total(t) for t in tree) if isinstance(tree, (list, tuple)) else tree


@case([X, (Y, [X, 1])], whole=True)
def recursion_over_tree(tree):
    return total(tree)


@case(X, 300)
def deep_recursion(x, n):
    return power(x * 0 + 1, n)


def endless(n):
    return endless(n + 1)


@case(X, hit=False, calls=2)
def endless_recursion(x):
    try:
        return endless(0)
    except RecursionError:
        return x + 1


@case(X, whole=True)
def local_recursion(x):
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    return x * fact(5)


# -- closures --------------------------------------------------------------------------------------


@case(X, whole=True)
def reads_closure(x):
    y = x + 1

    def f():
        return y * 2

    return f()


@case(X, whole=True)
def closure_sees_later_write(x):
    def f():
        return y * 2

    y = x + 1
    a = f()
    y = x + 2
    return a, f()


@case(X, whole=True)
def nonlocal_write(x):
    count = 0

    def f(v):
        nonlocal count
        count += 1
        return v + count

    return f(f(f(x))), count


@case(X, whole=True)
def nonlocal_two_deep(x):
    y = x

    def f():
        def g():
            nonlocal y
            y = y * 2

        g()
        return y

    return f(), y


@case(X, whole=True)
def closures_share_a_cell(x):
    value = x

    def get():
        return value

    def put(v):
        nonlocal value
        value = v

    put(get() + 5)
    return value, get()


@case(X, whole=True, modes=MODES)
def returns_closure(x):
    y = x + 1

    def f(v):
        return v + y

    return f


@case(X, whole=True)
def returns_closures_that_share(x):
    n = 0

    def up():
        nonlocal n
        n += 1
        return n

    def get():
        return n, x

    up()
    return up, get


@case(X, whole=True)
def returns_lambda(x):
    return lambda v, k=3: v + x + k


@case(X, whole=True)
def lambdas_in_loop(x):
    fs = [lambda: i for i in range(3)]
    gs = [lambda i=i: i for i in range(3)]
    return x, [f() for f in fs], [g() for g in gs]


@case(X, whole=True)
def late_binding_in_for(x):
    fs = []
    for i in range(3):
        fs.append(lambda v: v + i)
    return [f(x) for f in fs]


@case(X)
def unset_cell(x):
    def f():
        return y

    if x is None:
        y = 1
    return f()


@case(X)
def deleted_cell(x):
    y = 1

    def f():
        return y

    del y
    return f()


@case(X, line=True)
def unset_local(x):
    if x is None:
        y = 1
    return x + y


@case(X)
def deleted_local(x):
    y = x
    del y
    return y


def counter():
    n = 0

    def count(x):
        nonlocal n
        n += 1
        return x + n

    return count


@case(X, factory=True, hit=False, calls=5)
def captured_counter():
    return counter()


@case(X, factory=True)
def captured_with_constant_cell():
    y = 3

    def f(x):
        return x * y

    return f


@case(X, factory=True)
def captured_with_tensor_cell():
    y = gh.ones(3)

    def f(x):
        return x * y

    return f


@case(X, factory=True, hit=False)
def captured_with_list_cell():
    log = []

    def f(x):
        log.append(1)
        return x + len(log)

    return f


@case(X, whole=True)
def function_attributes(x):
    def f(v):
        return v

    f.extra = 3
    return f(x) + f.extra, f.__name__, f.__qualname__


@case(X, whole=True)
def annotated_inner(x):
    def f(v: gh.Tensor, n: int = 3) -> gh.Tensor:
        return v + n

    return f(x), sorted(f.__annotations__), f.__defaults__


@case(X, whole=True)
def keyword_defaults_of_inner(x):
    k = 4

    def f(v, *, n=k, m=x):
        return v + n + m

    return f(x), f(x, n=1), f


@case(X, whole=True)
def inner_star(x):
    def f(*a, **k):
        return a, k

    return f(1, x, z=2), f(*[x], **{"q": x})


@case(X, whole=True)
def immediately_called(x):
    return (lambda a, *b: a + sum(b))(x, 1, 2)


@case(X, whole=True)
def class_cell_in_comprehension(x):
    n = 2
    return [[(a + n) * x for a in range(b)] for b in range(3)]


@case(X, whole=True)
def conditional_function(x):
    if x.shape[0] > 1:

        def f(v):
            return v + 1
    else:

        def f(v):
            return v - 1

    return f(x)


@case(X, whole=True)
def compose(x):
    def chain(*fs):
        return functools.reduce(lambda f, g: lambda v: g(f(v)), fs)

    return chain(add_one, gh.cos, lambda v: v * 2)(x)


@case(X, whole=True)
def curry(x):
    return (lambda a: lambda b: lambda c: a + b * c)(x)(2)(3)


@case(X, Y, whole=True)
def same_function_other_closure(x, y):
    def make(k):
        return lambda v: v + k

    f, g = make(1), make(y)
    return f(x), g(x), f is g, f.__code__ is g.__code__


def many(a, b, c, d, e, f, g, h, i, j, k=1, *l, m=2, **n):  # noqa: E741
    return a + b + c + d + e + f + g + h + i + j + k + sum(l) + m + sum(n.values())


@case(X, whole=True)
def many_arguments(x):
    return many(x, *range(9), 4, *[5, 6], m=7, **{f"k{i}": i for i in range(4)})


@case(X, whole=True)
def returns_nothing(x):
    x + 1


@case(X, whole=True, modes=MODES)
def returns_many(x):
    a = x + 1
    return a, [a, x], {"a": a, "x": (x, a)}, None, 3, "s"


@case(X, X, whole=True)
def returns_argument(x, y):
    return x, y, x is y


@pytest.mark.parametrize(("fn", "args", "options"), case)
def test_calls(fn, args, options):
    check(fn, *args, **options)
