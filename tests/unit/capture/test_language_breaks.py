"""Captured functions as Python: what cannot be captured, in the middle of everything."""
# ruff: noqa: B008, C408, C417, F821, RET504

import contextlib
import functools
import random
import sys
from collections import deque

import numpy as np
import pytest
from checking import MODES, Cases, Make, check

import glasshouse as gh

case = Cases(*MODES[:4])
X = gh.arange(6.0).reshape(2, 3)
Y = gh.ones((2, 3))
LOG: list = []
TOTAL = 0


@gh.capture.disable
def opaque(v, *rest, **more):
    print("opaque", type(v).__name__, len(rest), sorted(more))
    return v


@gh.capture.disable
def opaque_error(kind, *args):
    raise kind(*args)


@gh.capture.disable
def opaque_call(fn, *args):
    return fn(*args)


def breaking(x, n=1):
    x = x + n
    print("breaking", n)
    return x * 2


def breaking_deep(x, n):
    if n == 0:
        print("deep")
        return x + 1
    return breaking_deep(x * 2, n - 1) + n


class Noisy:
    def __init__(self, v):
        print("made")
        self.v = v

    def __enter__(self):
        print("enter")
        return self

    def __exit__(self, *info):
        print("exit", info[0] and info[0].__name__)

    def __add__(self, other):
        print("add")
        return Noisy(self.v + other)

    def __getitem__(self, i):
        print("item", i)
        return self.v[i]

    def __len__(self):
        print("len")
        return 3

    def __bool__(self):
        print("bool")
        return True

    def __iter__(self):
        print("iter")
        yield self.v
        print("more")
        yield self.v * 2

    def __eq__(self, other):
        print("eq")
        return True

    __hash__ = None

    def __contains__(self, v):
        print("contains")
        return v == 1

    def __call__(self, v):
        print("call")
        return self.v * v

    def __getattr__(self, name):
        print("getattr", name)
        return name

    @property
    def loud(self):
        print("property")
        return self.v + 1

    @loud.setter
    def loud(self, value):
        print("setter")
        self.v = value


# -- plain breaks ----------------------------------------------------------------------------------


@case(X, modes=MODES)
def print_between(x):
    y = x + 1
    print("between", y.shape)
    return y * x


@case(X)
def print_tensor(x):
    y = x + 1
    print(y, y.sum())
    return y


@case(X)
def several_prints(x):
    print("a", end="")
    x = x + 1
    print("b", 1, 2, sep="-")
    x = x * 2
    print()
    return x


@case(X)
def break_at_start_and_end(x):
    print("start")
    y = x * 2
    print("end")
    return y


@case(X)
def explicit_break(x):
    x = x + 1
    gh.capture.graph_break()
    return x * 2


@case(X, [1], {"a": 2})
def live_locals(x, items, d):
    a, b, c = x + 1, "s", (1, x)
    unused = x * 100
    fn = lambda v: v + b if isinstance(v, str) else v * 2  # noqa: E731
    items.append(a)
    print("now", len(items), sorted(d))
    d["b"] = b
    items.append(fn(a))
    return a + c[1], fn("q"), d, unused is None


@case(X)
def break_mid_expression(x):
    return x * 2 + opaque(x + 1) * (opaque(x) - x)


@case(X)
def break_in_arguments(x):
    return max(1, opaque(3), 2), sum([opaque(x), x], opaque(0)), opaque(x, 1, k=opaque(2))


@case(X)
def break_in_displays(x):
    return [1, opaque(x), 3], {"a": x, "b": opaque(2)}, (opaque(1), x), {opaque(5), 6}


@case(X)
def break_in_keywords(x):
    return dict(a=x + 1, b=opaque(2), c=x), breaking(n=opaque(4), x=x)


@case(X, [1, 2, 3])
def break_in_subscripts(x, items):
    items[opaque(0)] = opaque(x)
    items[1] += opaque(5)
    return x[opaque(1)], items[opaque(1) : opaque(3)]


@case(X)
def break_in_format(x):
    return f"{opaque(1)} {x.ndim} {opaque('a')!r:>{opaque(5)}}"


@case(X)
def break_in_condition(x):
    a = x if opaque(True) else -x
    b = opaque(0) or x.ndim
    c = opaque(1) and opaque(0) and opaque(5)
    return a, b, c, 1 < opaque(2) < 3


@case(X)
def break_in_comparison(x):
    return opaque(3) in [1, opaque(3)], opaque(x) is x, opaque(2) == 2


@case(X)
def break_in_unpacking(x):
    a, (b, *c) = opaque((1, [2, x, 4]))
    d, e = opaque(x), c
    return a, b, c, d, e


@case(X)
def break_in_assert(x):
    assert opaque(True)
    assert not opaque(False), opaque("message")
    return x + 1


@case(X)
def break_in_failing_assert(x):
    x = x + 1
    assert opaque(False), opaque("message")
    return x


@case(X)
def break_in_default(x):
    def f(v, k=opaque(3), *, m=opaque(4)):
        return v + k + m

    return f(x)


@case(X)
def break_in_return(x):
    x = x + 1
    return opaque(x)


# -- loops -----------------------------------------------------------------------------------------


@case(X, [1, 2, 3], modes=MODES)
def break_in_for(x, items):
    for i in items:
        x = x + i
        print("i", i)
        x = x * 2
    return x


@case(X)
def break_in_range(x):
    for i in range(2, 9, 3):
        print(i)
        x = x + i
    else:
        print("else")
    return x, i


@case(X)
def break_in_nested_for(x):
    for i in range(2):
        for j, k in enumerate("ab"):
            x = x + i * j
            print(i, j, k)
            if j == 1:
                break
        x = x * 2
    return x


@case(X, {"a": 1, "b": 2})
def break_in_dict_loop(x, d):
    for k, v in d.items():
        print(k)
        x = x * v
        d[k] = x
    return d


@case([X, Y], [1, 2])
def break_in_zip_loop(xs, ns):
    out = []
    for x, n in zip(xs, ns):
        print(n)
        out.append(x * n)
    return out


@case(X, [3, 1, 2])
def break_in_builtin_iterators(x, items):
    out = []
    for i in reversed(items):
        print(i)
        out.append(x + i)
    for i in map(lambda v: v + 1, items):
        print(i)
    for i in filter(lambda v: v > 1, items):
        print(i)
    return out


@case(X)
def break_in_while(x):
    n = 3
    while n:
        x = x + n
        print("n", n)
        n -= 1
        if n == 1:
            continue
        x = x * 2
    return x


@case(X)
def break_in_while_condition(x):
    n = 0
    while opaque(n) < 3:
        n += 1
        x = x + n
    else:
        x = x * 2
    return x, n


@case(X)
def break_in_tensor_loop(x):
    for row in x:
        print(row.shape)
        x = x + row
    return x


@case(X, [1, 2])
def break_while_list_grows(x, items):
    for i in items:
        print(i)
        if len(items) < 4:
            items.append(i * 10)
        x = x + i
    return x


@case(X)
def break_in_generator_loop(x):
    def g():
        yield x
        yield x + 1

    out = []
    for y in g():
        print("got")
        out.append(y * 2)
    return out


@case(X)
def break_inside_generator(x):
    def g():
        print("first")
        yield x + 1
        print("second")
        yield x + 2
        print("end")

    return [y * 2 for y in g()]


@case(X)
def break_inside_generator_expression(x):
    return sum(opaque(i) * x for i in range(3)), [*map(opaque, [1, 2])]


@case(X)
def break_between_next_calls(x):
    it = iter([1, 2, 3])
    a = next(it)
    print("a", a)
    b = next(it)
    print("b", b)
    return x + a + b, list(it)


@case(X)
def break_with_live_generator(x):
    def g(n):
        for i in range(n):
            yield x + i

    it = g(3)
    a = next(it)
    print("between")
    b = next(it)
    return a, b, list(it)


@case(X)
def break_with_live_iterators(x):
    a, b, c = enumerate("ab"), zip("ab", [1, 2]), reversed([1, 2, 3])
    next(a), next(c)
    print("between")
    return list(a), list(b), list(c), x


@case(X)
def break_in_comprehension(x):
    return [opaque(i) + x for i in range(3) if opaque(i) != 1], {k: opaque(k) for k in "ab"}


@case(X)
def break_in_nested_comprehension(x):
    i = 9
    return [[opaque(i) * j for j in range(2)] for i in range(2)], i, x


@case(X)
def break_in_sort_key(x):
    return sorted([3, 1, 2], key=lambda v: opaque(-v)), max([1, 2], key=opaque), x + 1


@case(X)
def break_in_any(x):
    return any(opaque(i) for i in (0, 1, 2)), all(opaque(i) for i in (1, 0, 2)), x


# -- calls -----------------------------------------------------------------------------------------


@case(X, modes=MODES)
def break_in_inlined(x):
    y = x + 1
    z = breaking(y, 3)
    return z + y


@case(X)
def break_in_several_inlined(x):
    return breaking(x) + breaking(breaking(x, 2), n=3), x


@case(X)
def break_deep_inside(x):
    y = x * 3
    return breaking_deep(x, 3) + y


@case(X)
def break_in_lambda(x):
    f = lambda v: opaque(v) + x  # noqa: E731
    return f(1) + f(x)


@case(X)
def break_with_cells(x):
    n = 1

    def up():
        nonlocal n
        n += 1
        print("up", n)
        return n

    up()
    print("n", n)
    n += 10
    return up() + x, n


@case(X)
def break_with_shared_cells(x):
    value = x

    def get():
        return value

    def put(v):
        nonlocal value
        print("put")
        value = v

    put(get() + 1)
    print("mid")
    put(get() * 2)
    return get(), value


@case(X)
def break_then_return_closure(x):
    y = x + 1
    print("y")

    def f(v):
        return v + y

    print("f")
    y = y * 2
    return f


@case(X)
def break_in_decorated(x):
    def loud(fn):
        @functools.wraps(fn)
        def inner(*args, **kwargs):
            print("before")
            out = fn(*args, **kwargs)
            print("after")
            return out

        return inner

    @loud
    def f(v, k=1):
        return v * k

    return f(x) + f(x, k=2)


@case(X)
def opaque_gets_function(x):
    def f(v):
        return v * 2 + x

    return opaque_call(f, x), opaque_call(lambda: x + 1), opaque_call(breaking, x, 4)


@case(X)
def opaque_changes_cell(x):
    n = 0

    def up():
        nonlocal n
        n += 1

    opaque_call(up)
    opaque_call(up)
    return n, x + n


@case(X, [1])
def opaque_changes_list(x, items):
    items.append(2)
    opaque_call(items.append, x)
    opaque_call(items.pop, 0)
    return len(items), items[0]


@case(X, {"a": 1})
def opaque_changes_dict(x, d):
    d["b"] = 2
    opaque_call(d.update, {"c": x})
    opaque_call(d.pop, "a")
    d["e"] = 5
    return list(d), d["c"] is x


@case(X)
def opaque_changes_new_list(x):
    items = [x]
    alias = items
    opaque_call(items.append, 1)
    alias.append(2)
    return items, items is alias


@case(X, Make(lambda: Noisy(X)))
def opaque_changes_object(x, o):
    o.v = 1
    opaque_call(setattr, o, "v", x)
    o.w = o.v + 1
    opaque_call(delattr, o, "v")
    return o.w, "v" in o.__dict__


@case(X, names=["TOTAL"], hit=False)
def opaque_changes_global(x):
    global TOTAL
    TOTAL = 1
    opaque_call(change_total, 5)
    return TOTAL, x


def change_total(n):
    global TOTAL
    TOTAL += n


@case(X + 0)
def opaque_changes_tensor(x):
    y = x + 1
    opaque_call(y.add_, 5)
    x += 1
    opaque_call(x.mul_, 2)
    return y * 2, x


@case(X)
def opaque_holds_result(x):
    y = x + 1
    kept = opaque_call(lambda: [y])
    return kept[0] is y, y


@case(X)
def recursion_with_break(x):
    def f(n):
        print(n)
        return x if n == 0 else f(n - 1) + n

    return f(3)


@case(X)
def star_calls_with_break(x):
    return plus(*opaque([x, 2]), **opaque({"c": 3})), plus(x, *[opaque(1)], c=opaque(2))


def plus(a, b, c=0):
    return a + b + c


# -- handlers --------------------------------------------------------------------------------------


@case(X, modes=MODES)
def break_in_try(x):
    try:
        x = x + 1
        print("try")
        x = x * 2
    except ValueError:
        print("never")
    else:
        print("else")
        x = x - 1
    finally:
        print("finally")
    return x


@case(X)
def opaque_error_is_caught(x):
    y = x + 1
    try:
        y = y * 2
        opaque_error(ValueError, "bad")
        y = None
    except ValueError as error:
        return y, str(error)


@case(X, line=True)
def opaque_error_is_not_caught(x):
    x = x + 1
    opaque_error(ValueError, "bad")
    return x


@case(X)
def error_behind_break(x):
    try:
        print("a")
        x = x + 1
        raise KeyError("k")
    except KeyError as error:
        print("handler", error)
        x = x * 2
    return x


@case(X, line=True)
def error_behind_break_escapes(x):
    print("a")
    x = x + 1
    print("b")
    raise KeyError("k")


@case(X)
def break_in_handler(x):
    try:
        raise KeyError("k")
    except KeyError as error:
        print("in handler", error, sys.exc_info()[0].__name__)
        x = x + 1
        print(repr(error))
    print("behind", sys.exc_info())
    return x


@case(X)
def break_in_handler_and_reraise(x):
    try:
        raise KeyError("k")
    except KeyError:
        print("in handler")
        raise


@case(X)
def break_in_handler_and_raise_other(x):
    try:
        raise KeyError("first")
    except KeyError as error:
        print("in handler")
        raise ValueError("second") from error


@case(X)
def break_in_handler_context(x):
    try:
        raise KeyError("first")
    except KeyError:
        print("in handler")
        raise ValueError("second")  # noqa: B904


@case(X)
def break_in_finally(x):
    try:
        x = x + 1
        return x
    finally:
        print("finally", x.shape)
        x = None


@case(X)
def break_in_finally_with_error(x):
    try:
        raise KeyError("k")
    finally:
        print("finally")
        x = x + 1


@case(X)
def break_in_nested_handlers(x):
    try:
        try:
            print("inner")
            raise KeyError("k")
        except ValueError:
            print("no")
        finally:
            print("inner finally")
            x = x + 1
    except KeyError as error:
        print("outer", error)
        x = x * 2
    return x


@case(X)
def break_in_loop_with_try(x):
    for i in range(4):
        try:
            print(i)
            if i == 1:
                continue
            if i == 3:
                break
            x = x + 6 // (i - 2 if i == 2 else 1)
        except ZeroDivisionError as error:
            print("caught", error)
        finally:
            print("finally", i)
    return x


@case(X)
def error_in_inlined_with_break(x):
    def f(v):
        print("f")
        raise KeyError("from f")

    try:
        f(x)
    except KeyError as error:
        return x + 1, str(error)


@case(X)
def caught_in_inlined_with_break(x):
    def f(v):
        try:
            opaque_error(KeyError, "q")
        except KeyError:
            print("caught")
            return v + 1

    return f(x) * 2


@case(X)
def error_through_frames(x):
    def f(v):
        try:
            return g(v)
        finally:
            print("f ends")

    def g(v):
        opaque_error(KeyError, v.ndim)

    try:
        return f(x)
    except KeyError as error:
        return error.args, x + 1


@case(X)
def tensor_error_is_caught(x):
    try:
        print("a")
        y = x @ gh.ones((7, 7))
    except Exception as error:
        print(type(error).__name__)
        y = x
    return y


# -- with ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def printing(name):
    print("begin", name)
    try:
        yield name
    finally:
        print("end", name)


@case(X)
def break_in_with(x):
    with Noisy(x) as n:
        x = x + n.v
        print("inside")
        x = x * 2
    return x


@case(X)
def break_in_context_manager(x):
    with printing("a") as name, printing("b"):
        x = x + 1
        print(name)
        x = x * 2
    return x


@case(X)
def error_in_with_and_break(x):
    with printing("a"):
        print("inside")
        raise KeyError("k")


@case(X)
def error_in_with_is_caught(x):
    try:
        with printing("a"):
            x = x + 1
            opaque_error(ValueError, 1)
    except ValueError:
        print("caught")
    return x


@case(X)
def return_in_with_and_break(x):
    with printing("a"):
        y = x + 1
        print("inside")
        return y


@case(X)
def suppress_and_break(x):
    with contextlib.suppress(KeyError):
        print("inside")
        x = x + 1
        opaque_error(KeyError, "k")
        x = None
    print("behind")
    return x


@case(X)
def break_in_no_grad(x):
    w = gh.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with gh.no_grad():
        a = x * w
        print("inside")
        b = x * w
    c = x * w
    return a.requires_grad, b.requires_grad, c.requires_grad, b


@case(X)
def with_in_loop_and_break(x):
    for i in range(3):
        with printing(i):
            if i == 1:
                continue
            x = x + i
            print("body", i)
    return x


@case(X)
def exit_stack_and_break(x):
    with contextlib.ExitStack() as stack:
        stack.enter_context(printing("a"))
        x = x + 1
        stack.callback(print, "called")
        print("inside")
    return x


# -- special methods and objects that break --------------------------------------------------------


@case(X)
def noisy_made(x):
    n = Noisy(x)
    m = n + 1
    return m.v, n[0], len(n), bool(n)


@case(X)
def noisy_iterated(x):
    n = Noisy(x)
    a, b = n
    return [y + 1 for y in n], a, b, list(n)


class Hinted:
    """An iterable that tells how many items to expect."""

    def __init__(self, items, hint):
        self.items = items
        self.hint = hint

    def __iter__(self):
        print("iter")
        return iter(self.items)

    def __length_hint__(self):
        print("hint")
        if isinstance(self.hint, type):
            raise self.hint("no hint")
        return self.hint


@case(X)
def lengths_are_asked_for(x):
    y = [*Hinted([x, 1], 5), 2]
    y.extend(Hinted([3], NotImplemented))
    y += Hinted([4], TypeError)
    return y, tuple(Hinted([x * 2], 0)), len(set(Hinted([7], 1))), x + 1


@case(X, hit=False)
def lengths_that_are_wrong(x):
    caught = []
    for hint in (-1, "a", KeyError):
        try:
            list(Hinted([x], hint))
        except (ValueError, TypeError, KeyError) as error:
            caught.append((type(error), str(error)))
    return caught, x + 1


@case(X)
def noisy_called(x):
    n = Noisy(x)
    return n(2), n == 3, 1 in n, 5 not in n, n.nothing, x if n else None


@case(X)
def noisy_property(x):
    n = Noisy(x)
    n.loud = n.loud + 1
    n.loud += 5
    return n.v


@case(X)
def noisy_in_condition(x):
    n = Noisy(x)
    while n:
        x = x + 1
        if x.ndim and len(n) == 3:
            break
    return (n and x), (not n), n or x


@case(X)
def noisy_class_inside(x):
    print("before")

    class Local:
        print("body")
        v = x

        def get(self):
            print("get")
            return self.v + 1

    return Local().get()


# -- opaque parts of the library and others --------------------------------------------------------


@case(X)
def numpy_in_the_middle(x):
    a = (x + 1).numpy()
    b = np.cumsum(a, axis=0)
    return gh.tensor(b) + x, b.sum(), a.shape


@case(X)
def item_in_the_middle(x):
    n = x.sum().item()
    y = x * n
    if n > 3:
        y = y + int(x[0, 1].item())
    return y, n


@case(X)
def random_module(x):
    random.seed(3)
    a = [random.random(), random.randint(1, 5), random.choice("abc")]
    return x * a[0], a


@case(X, tolerance=1e-6)
def library_random(x):
    gh.random.seed(3)
    a = gh.random.normal((3,))
    print("between")
    return x + a, gh.random.normal((3,))


@case(X, Make(deque, [1, 2]))
def deque_in_the_middle(x, d):
    d.append(x + 1)
    d.rotate(1)
    y = d.popleft()
    return y * 2, list(d)


@case(X)
def unknown_builtins(x):
    y = x + 1
    n = sys.is_finalizing()
    z = y * 2
    return z, n, vars(Noisy)["__len__"].__name__, memoryview(b"ab")[0]


@case(X)
def standard_output(x):
    sys.stdout.write("a\n")
    y = x + 1
    print("b", file=sys.stdout, flush=True)
    return y


@case(X)
def many_breaks(x):
    for i in range(12):
        x = x + i
        print(i)
    return x


@case(sets=[(X, 1), (X, 2), (X, 3), (X, 2)])
def break_with_changing_number(x, n):
    y = x * n
    print("n", n)
    for i in range(n):
        y = y + i
    return y + n


@case(sets=[(X, True), (X, False), (X, True), (-X, False)])
def break_with_changing_branch(x, flag):
    if flag:
        print("yes")
        x = x + 1
    else:
        x = x - 1
        print("no")
    if x.sum() > 0:
        print("positive")
    return x * 2


@case(X, names=["LOG"], hit=False)
def log_between(x):
    LOG.append("a")
    print(len(LOG))
    LOG.append(x + 1)
    print(len(LOG))
    return list(LOG)


@case(X, [0], again=True, hit=False, calls=4)
def state_between(x, items):
    items[0] += 1
    print(items[0])
    items.append(x * items[0])
    return len(items)


@case(X)
def deleted_names_and_break(x):
    y, z = x + 1, 3
    del y
    print("deleted")
    try:
        return y
    except UnboundLocalError as error:
        return str(error), z


@case(X)
def unset_name_behind_break(x):
    if x is None:
        y = 1
    print("unset")
    return y


@case(X)
def match_and_break(x):
    match opaque([1, x]):
        case [a, b] if opaque(a) == 2:
            return None
        case [1, b]:
            print("matched")
            return b + 1


@case(X)
def walrus_and_break(x):
    return [y := opaque(3), y**2], (z := opaque(x)) + 1, z, y


@case(X)
def chained_and_break(x):
    a = b = opaque([1])
    a.append(2)
    return a is b, b, x


@case(X)
def augmented_and_break(x):
    d = {"a": [1], "n": 1}
    d["a"] += opaque([2])
    d["n"] += opaque(5)
    x += opaque(1)
    return d, x


@case(X, kwargs={"n": 3})
def arguments_and_break(x, *rest, n=1, **more):
    print(rest, n, more)
    x = x + n
    print(sorted(more))
    return x, rest, more


@pytest.mark.parametrize(("fn", "args", "options"), case)
def test_breaks(fn, args, options):
    check(fn, *args, **options)
