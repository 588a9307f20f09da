"""Captured functions as Python: strings, numbers, globals, imports, changing values, identity."""
# ruff: noqa: F821, F841, I001, SIM300, UP030, UP032

import math
import sys

import pytest
from checking import MODES, Cases, Make, check

import glasshouse as gh

case = Cases()
X = gh.arange(6.0).reshape(2, 3)
Y = gh.ones((2, 3))
COUNT = 0
ITEMS = [1, 2]
TABLE = {"a": 1}
SCALE = 2.0
TENSOR = gh.ones((2, 3))
FLAG = True
this = sys.modules[__name__]


# -- strings ---------------------------------------------------------------------------------------


@case(X, "ab", whole=True, modes=MODES)
def string_methods(x, s):
    return x, s.upper(), s.join("xyz"), s.replace("a", "q"), "a,b".split(","), s.center(6, "*")


@case(X, "name", 3, whole=True)
def format_strings(x, s, n):
    return f"{s}-{n:03d} {n!r} {s:>6} {n + 1} {n / 2:.2f} {s!r:>8} {n=} {{}}", x


@case(X, "w", 3, whole=True)
def format_nested(x, s, n):
    width = 7
    return f"{s:{'>'}{width}}|{n:{width}}|{f'{n}{s}'}", x


@case(X, whole=True)
def format_shapes(x):
    return f"{x.shape} {x.dtype} {x.ndim} {len(x)} {type(x).__name__}", x + 1


@case(X)
def format_tensor(x):
    y = x + 1
    return f"{y} {y.sum():.1f}", x


@case(X, 5, "s", whole=True)
def format_older(x, n, s):
    return "%d %s %5.2f %r %%" % (n, s, n, s), "{} {1}".replace("{1}", "{}").format(n, s), x  # noqa: UP031


@case(X, whole=True)
def format_method(x):
    return "{a} {0} {b:>4}".format(1, a=2, b="z"), "{0[1]} {1.real}".format([1, 2], 3), x


@case(X, 3, whole=True)
def string_arithmetic(x, n):
    return "a" * n + "b", "abcd", "a" in "cat", "b" < "c", "abc"[1], "abc"[::-1], len("abc" * n), x


@case(X, "a")
def string_errors(x, s):
    return s + 1


@case(X, "12", whole=True)
def string_conversions(x, s):
    return int(s) + 1, float(s), str(3.5), repr("q"), ord("a"), chr(98), hex(255), x * int(s)


@case(X, ["b", "a"], whole=True)
def string_joins(x, items):
    return ",".join(items), "".join(c for c in "abc" if c != "b"), "-".join(map(str, range(3))), x


@case(X, "mode", whole=True)
def string_switch(x, mode):
    if mode == "other":
        return x
    if mode.startswith("mo") and mode.endswith(("de", "xx")):
        return getattr(gh, "cos")(x)  # noqa: B009
    return None


@case(X, whole=True)
def string_more(x):
    return "a b  c".split(), "k=v".partition("="), " s ".strip(), "Ab".swapcase(), "a".isdigit(), x


@case(X, whole=True)
def bytes_values(x):
    return b"ab" + b"c", "é".encode(), b"abc".decode(), b"abc"[0], list(b"ab"), b"a".hex(), x


# -- numbers ---------------------------------------------------------------------------------------


@case(X, 7, 2, whole=True, modes=MODES)
def integer_arithmetic(x, a, b):
    return (
        a + b,
        a - b,
        a * b,
        a / b,
        a // b,
        a % b,
        a**b,
        -a,
        ~a,
        a << b,
        a >> b,
        a & b,
        a | b,
        a ^ b,
    )


@case(X, -7, 2.5, whole=True)
def mixed_arithmetic(x, a, b):
    return (
        a // b,
        a % b,
        divmod(a, b),
        a**b,
        abs(a),
        round(b),
        round(3.14159, 2),
        pow(2, 10, 7),
        x * b,
    )


@case(X, 5, whole=True)
def in_place_arithmetic(x, n):
    n += 1
    n *= 2
    n //= 5
    n **= 3
    n %= 5
    n <<= 2
    n -= 0.5
    x += n
    return n, x


@case(X, 0)
def division_by_zero(x, n):
    return x.shape[0] / n


@case(X, 0.0)
def modulo_by_zero(x, n):
    return 5 % n


@case(X, "a")
def wrong_operand(x, s):
    return 3 - s


@case(X, None)
def none_operand(x, s):
    return 3 + s


@case(X, 3, 4.0, whole=True)
def math_functions(x, n, v):
    return (
        math.sqrt(v),
        math.floor(2.7),
        math.pi * n,
        math.gcd(12, n),
        math.inf,
        math.prod([n, 2]),
        x / v,
    )


@case(X)
def math_error(x):
    return math.sqrt(-1)


@case(X, 3, 3.0, True, whole=True)
def number_comparison(x, a, b, c):
    return a == b, a is b, c == 1, c is True, c + c, 1 < b, a != 4, float("nan") != float("nan"), x


@case(X, whole=True)
def special_floats(x):
    nan, inf = float("nan"), float("inf")
    return nan, -inf, -0.0, 0.0 == -0.0, math.isnan(nan), inf - inf, 1e308 * 10, x


@case(X, float("nan"), whole=True)
def nan_argument(x, v):
    return x * 0, v, v != v


@case(X, -0.0, whole=True)
def negative_zero_argument(x, v):
    return v, math.copysign(1, v), x


@case(X, sets=[(X, 0.0), (X, -0.0), (X, 0.0)])
def zeros_of_both_signs(x, v):
    return math.copysign(1, v), x


@case(X, 2**70, whole=True)
def large_integer(x, n):
    return n + 1, n // 3, str(n), x


@case(X, 1 + 2j, whole=True)
def complex_number(x, c):
    return c * c, c.real, abs(3 + 4j), c.conjugate(), x


@case(X, 10, whole=True)
def integer_methods(x, n):
    return (
        n.bit_length(),
        (2.5).is_integer(),
        n.real,
        (0.5).hex(),
        int.from_bytes(b"\x01", "big"),
        x,
    )


@case(X, True, False, whole=True)
def boolean_logic(x, a, b):
    return a and b, a or b, not a, a ^ b, a & b, bool([]), int(a), sum([a, a]), x if a else None


@case(X, 3, whole=True)
def number_conversions(x, n):
    return int(2.9), float(n), bool(n), complex(n), int("ff", 16), str(n), x * float(n)


# -- numbers and other values that change from call to call ----------------------------------------


@case(sets=[(X, 1), (X, 2), (X, 3), (X, 1), (X, 7)])
def integers_change(x, n):
    return x * n + n


@case(sets=[(X, 1.5), (X, 2.5), (X, float("inf")), (X, 2), (X, True)])
def floats_change(x, v):
    return x * v, v


@case(sets=[(X, 1), (X, 2), (X, 3), (X, 0), (X, 4)])
def integers_change_a_branch(x, n):
    return x + n if n > 2 else x - n


@case(sets=[(X, 1), (X, 3), (X, 2), (X, 0), (X, 5)])
def integers_change_a_loop(x, n):
    for i in range(n):
        x = x + i
    return x, [n] * n


@case(sets=[(X, 1), (X, 2), (X, 0), (X, -1), (X, 5)])
def integers_change_an_index(x, n):
    return [10, 20, 30][n], x[n % 2]


@case(sets=[(X, 1), (X, 2), (X, 3), (X, 4)])
def integers_change_text(x, n):
    return f"n={n}", str(n), x, n


@case(sets=[(X, 1), (X, 2), (X, 3), (X, 0)])
def integers_change_arithmetic(x, n):
    m = n * 2 - 1
    return x + m / 3, m // 2, m % 3, max(m, 2), divmod(m, 2)


@case(sets=[(X, 4), (X, 2), (X, 1), (X, 0)])
def integers_change_to_an_error(x, n):
    return x * (8 // n)


@case(sets=[(X, 4), (X, 4.0), (X, True), (X, 1), (X, "1" == "1")])
def number_types_change(x, n):
    return type(n).__name__, x, n


@case(sets=[(X, "a"), (X, "b"), (X, None), (X, ("a",)), (X, "a")])
def types_change(x, v):
    return x + len(v or ()), v


@case(sets=[(X, [1]), (X, [1, 2]), (X, []), (X, [3]), (X, (3,))])
def list_lengths_change(x, items):
    return x + sum(items), len(items), [i * 2 for i in items]


@case(sets=[(X, {"a": 1}), (X, {"a": 2}), (X, {"b": 1}), (X, {}), (X, {"a": 1, "b": 2})])
def dict_keys_change(x, d):
    return x * d.get("a", 10), "b" in d, list(d)


@case(sets=[(X, {"a": 1, "b": 2}), (X, {"b": 2, "a": 1})])
def dict_order_changes(x, d):
    return x, list(d), [v for v in d.values()]  # noqa: C416


@case(sets=[(X,), (gh.ones(4),), (gh.ones((2, 3), dtype=gh.int32),), (gh.ones((1, 1, 2)),), (X,)])
def shapes_change(x):
    return x * x.shape[-1] + x.ndim, x.dtype


@case(sets=[(X, X), (X, Y), (Y, X)])
def sharing_of_arguments_changes(x, y):
    return x is y, x + y


@case(Make(lambda: [X + 0] * 2))
def aliased_tensors(xs):
    a, b = xs
    a += 1
    return a is b, b


@case(sets=[(Make(lambda: [X + 0] * 2),), (Make(lambda: [X + 0, X + 0]),)])
def aliasing_changes(xs):
    xs[0] += 1
    return xs[1] * 2


@case(sets=[(X, gh.cos), (X, gh.sin), (X, abs), (X, gh.cos), (X, lambda v: v + 1)])
def functions_change(x, fn):
    return fn(x)


@case(sets=[(X, 5), (X, 5), (X, 6), (X, 5)], dynamic=True)
def integers_from_the_start(x, n):
    return x * n + n // 2


@case(sets=[(X, 3, 4), (X, 4, 3), (X, 3, 3), (X, 5, 9)])
def integers_compare(x, a, b):
    return x + 1 if a < b else x - 1 if a == b else x


@case(sets=[(X, 256), (X, 257), (X, 10**30), (X, -5)])
def integer_identity(x, n):
    m = n
    return m is n, m == n, x


# -- globals, imports, del -------------------------------------------------------------------------


@case(X, whole=True)
def reads_globals(x):
    return x * SCALE + TENSOR, ITEMS[0], TABLE["a"], FLAG


@case(X, names=["COUNT"], hit=False)
def writes_global(x):
    global COUNT
    COUNT += 1
    return x + COUNT


@case(X, names=["TENSOR"])
def writes_tensor_global(x):
    global TENSOR
    TENSOR = x + 1
    return TENSOR * 2


@case(X, names=["ITEMS", "TABLE"], hit=False)
def changes_global_containers(x):
    ITEMS.append(len(ITEMS))
    TABLE["b"] = x
    TABLE["a"] += 1
    return ITEMS[-1], TABLE["a"]


@case(X, names=["ITEMS"], hit=False)
def replaces_global_list(x):
    global ITEMS
    old = ITEMS
    ITEMS = [x]
    return len(old) > 0, ITEMS


@case(X, names=["NEW"], hit=False)
def makes_global(x):
    global NEW
    exists = "NEW" in globals()
    NEW = x + 1
    return exists, NEW


@case(X, names=["COUNT"], hit=False)
def deletes_global(x):
    global COUNT
    COUNT = 3
    del COUNT
    try:
        return COUNT
    except NameError as error:
        COUNT = 0
        return str(error), x


@case(X)
def unknown_global(x):
    return x + nowhere


def sets_scale(v):
    global SCALE
    SCALE = v


@case(X, names=["SCALE"], hit=False)
def inlined_global_write(x):
    a = x * SCALE
    sets_scale(3.0)
    return a, x * SCALE


@case(X, names=["COUNT"])
def global_read_after_break(x):
    global COUNT
    COUNT = 5
    print("break", COUNT)
    COUNT = 6
    return x + COUNT


@case(X, names=["COUNT"], hit=False)
def global_set_through_module(x):
    this.COUNT = 9
    return COUNT, x


@case(X, whole=True)
def shadowed_builtin(x):
    len = lambda v: 42  # noqa: E731
    return len(x), max(1, 2)


@case(X, whole=True)
def imports_inside(x):
    import math as m
    from collections import OrderedDict as Ordered

    import glasshouse.nn as nn

    return x * m.pi, Ordered(a=1), nn.Linear.__name__


@case(X, whole=True)
def imports_several(x):
    import os.path
    from glasshouse import cos, sin

    return cos(x) + sin(x), os.path.sep


@case(X)
def import_fails(x):
    import no_such_module_at_all

    return no_such_module_at_all


@case(X)
def import_name_fails(x):
    from math import no_such_name

    return no_such_name


@case(X)
def import_fails_caught(x):
    try:
        import no_such_module_at_all as m
    except ImportError:
        m = None
    return x, m


@case(X, [1, 2, 3], {"a": 1}, whole=True)
def deletes(x, items, d):
    y, z = x, 3
    del y, items[0], d["a"]
    del z
    return items, d, x


@case(X)
def deletes_twice(x):
    y = x
    del y
    del y


@case(X)
def local_names(x):
    y = 3
    return sorted(locals()), x + y


@case(X, names=["COUNT"])
def globals_call(x):
    return globals()["COUNT"], x


@case(X)
def evaluates_text(x):
    n = 4
    return eval("n + 1", {}, {"n": n}), x


# -- identity --------------------------------------------------------------------------------------


@case(X, whole=True)
def tensor_identity(x):
    y = x
    z = x + 0
    return y is x, z is x, z is not x, [x][0] is x, y, z


@case(X, whole=True)
def same_result_twice(x):
    y = x + 1
    return y, y, [y], {"k": y}


@case(X, [1], {"a": 2}, whole=True)
def arguments_returned(x, items, d):
    return items, d, x, (items, d)


@case(X, object(), whole=True)
def plain_object(x, o):
    return o is not None, [o], o == o, x


@case(X, whole=True)
def sentinel(x):
    missing = object()
    d = {"a": missing}
    return d["a"] is missing, d.get("b", missing) is missing, x


@case(X, whole=True)
def ids_and_hashes(x):
    y = x
    return id(x) == id(y), hash("a") == hash("a"), id(x) != id(x + 1)


@case(X, whole=True)
def singletons(x):
    return None, Ellipsis, NotImplemented, True, x[..., 0], x[None].shape


@case(X + 0, whole=True, modes=MODES)
def in_place_argument(x):
    x += 1
    x[0] = 5
    x.add_(1)
    return x


@case(X + 0, whole=True)
def in_place_view(x):
    row = x[0]
    row += 10
    return x * 1, row


@case(X + 0, [], whole=True, modes=MODES)
def in_place_and_kept(x, log):
    log.append(x.clone())
    x *= 2
    log.append(x)
    return log[0] + log[1]


@case(gh.tensor([[1.0, 2.0, 3.0]], requires_grad=True), whole=True)
def gradient_argument(x):
    return (x * 3).sum(), x.requires_grad


@case(Make(lambda: gh.tensor([[1.0, 2.0, 3.0]], requires_grad=True)), hit=False)
def backward_inside(x):
    y = (x * 3).sum()
    y.backward()
    return x.grad, y


@case(X, whole=True)
def constant_tensors(x):
    return x + gh.ones((2, 3)) * gh.arange(3.0), gh.tensor([1.0, 2.0, 3.0])


@case(X, whole=True)
def tensor_metadata(x):
    return x.shape, x.dtype, x.ndim, x.size, len(x), x.shape[0] * x.shape[-1], tuple(x.shape)


@case(X)
def tensor_values(x):
    return x.sum().item() + 1, x[0].tolist(), float(x.max()), int(x[1, 1]), bool(x[0, 1] > 0)


@case(X, whole=True)
def tensor_indexing(x):
    i = 1
    return x[i], x[:, i:], x[i, -1], x[..., None], x[[0, 1]], x[::1]


@case(X)
def index_by_tensor_value(x):
    n = int(x[0, 1])
    return x[n], [7, 8][n]


@pytest.mark.filterwarnings("ignore:glasshouse. this writes to a part")
@pytest.mark.parametrize(("fn", "args", "options"), case)
def test_values(fn, args, options):
    check(fn, *args, **options)
