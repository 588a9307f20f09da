"""Captured functions as Python: branches, loops, match, exceptions, with statements."""
# ruff: noqa: B007, B016, F821, RET504

import contextlib
import sys
import threading
import traceback
from contextlib import ExitStack, contextmanager, nullcontext, suppress

import pytest
from checking import MODES, Cases, check

import glasshouse as gh

case = Cases(*MODES[:4])
X = gh.arange(6.0).reshape(2, 3)
Y = gh.ones((2, 3))


class Custom(Exception):
    def __init__(self, code, detail=None):
        super().__init__(f"custom {code}")
        self.code, self.detail = code, detail


class Sub(Custom):
    pass


class Managed:
    def __init__(self, log, swallow=False, value=None):
        self.log, self.swallow, self.value = log, swallow, value

    def __enter__(self):
        self.log.append("enter")
        return self if self.value is None else self.value

    def __exit__(self, kind, error, trace):
        self.log.append(("exit", kind and kind.__name__, str(error)))
        return self.swallow


@contextmanager
def managing(log, value=1):
    log.append("begin")
    try:
        yield value
    except KeyError as error:
        log.append(f"swallowed {error}")
    finally:
        log.append("end")


class Box:
    __match_args__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b


# -- branches and loops ----------------------------------------------------------------------------


@case(X, 3, whole=True, modes=MODES)
def if_elif_else(x, n):
    if n < 2:
        return x
    elif n == 3:
        x = x + 1
    else:
        x = x - 1
    return x * n


@case(X, None, whole=True)
def if_none(x, y):
    if y is None:
        y = x
    return x + y if y is not None and y.ndim == 2 else x


@case(X, 5, whole=True)
def chained_comparison(x, n):
    return 1 < n < 9, 1 < n > 9, 0 <= n <= 5 != 3, x if 3 < n < 4 else -x


@case(X, whole=True)
def chained_comparison_evaluates_once(x):
    log = []

    def f(v):
        log.append(v)
        return v

    return f(1) < f(2) < f(3), f(5) < f(4) < f(9), log


@case(X, 0, "", whole=True)
def short_circuits(x, n, s):
    return n or s or "last", n and 1 / n, not n, (n or x).shape, [] or None, 1 and 2


@case(X, whole=True)
def conditional_expression(x):
    return (x if x.ndim == 2 else None) + (1 if x.shape[1] > 5 else 2)


@case(X, [3, 4], whole=True)
def walrus(x, items):
    if (n := len(items)) > 1:
        x = x + n
    while (v := items.pop()) != 3:
        x = x * v
    return x, n, v


@case(X, 4, whole=True)
def while_loop(x, n):
    while n > 0:
        x = x + n
        n -= 1
    return x, n


@case(X, whole=True)
def while_with_break_continue(x):
    i = 0
    while True:
        i += 1
        if i % 2:
            continue
        if i > 6:
            break
        x = x + i
    return x, i


@case(X, 3, whole=True)
def while_else(x, n):
    while n:
        n -= 1
    else:
        x = x + 10
    while n < 5:
        n += 1
        if n == 2:
            break
    else:
        x = x + 100
    return x


@case(X, [1, 5, 2], whole=True)
def for_break_else(x, items):
    for i in items:
        if i == 5:
            break
        x = x + i
    else:
        x = None
    return x, i


@case(X, whole=True)
def nested_loops(x):
    for i in range(3):
        for j in range(3):
            if j == i:
                break
            if j == 1:
                continue
            x = x + i * j
        else:
            x = x - 1
    return x


@case(X, [], whole=True)
def empty_loop(x, items):
    for i in items:
        x = x + i
    return x


@case(X, whole=True)
def return_from_loops(x):
    for i in range(5):
        for j in range(5):
            if i + j == 3:
                return x * i + j
    return None


@case(X)
def branch_on_tensor(x):
    if x.sum() > 3:
        x = x + 1
    else:
        x = x - 1
    return x * 2


@case(sets=[(X,), (X,), (-X,), (-X,), (X,)])
def branch_on_tensor_both_ways(x):
    if x.sum() > 3:
        x = x + 1
    else:
        x = x - 1
    return x * 2


@case(X)
def branches_on_tensors(x):
    n = 0
    for i in range(4):
        if x.sum() > 10 * i:
            x = x + i
            n += 1
        elif x.max() > 3:
            x = x - 1
    return x, n


@case(X)
def while_on_tensor(x):
    n = 0
    while x.sum() < 100:
        x = x * 2
        n += 1
    return x, n


@case(X)
def tensor_in_conditions(x):
    a = x if x.any() else None
    b = x.sum() > 3 and x.sum() < 10 or x.mean()
    return a, b, not x.sum(), bool(x.max()), 1 < x.max() < 3


@case(X)
def tensor_truth_fails(x):
    if x:
        return 1
    return 2


@case(X)
def tensor_as_loop_bound(x):
    for _ in range(int(x.max())):
        x = x + 1
    return x


# -- match -----------------------------------------------------------------------------------------


def matched(v):
    match v:
        case 0 | 1:
            return "small"
        case int(n) if n > 100:
            return ("large", n)
        case "a" | "b" as letter:
            return letter
        case [x, y]:
            return ("two", x, y)
        case [first, *rest] if rest:
            return ("many", first, rest)
        case {"kind": "point", "x": x, **others}:
            return ("point", x, others)
        case Box(a, b=3):
            return ("box", a)
        case Box():
            return "other box"
        case None | True:
            return "constant"
        case str():
            return "text"
        case _:
            return "nothing"


@case(X, 1, whole=True)
@case(X, 500, whole=True)
@case(X, "b", whole=True)
@case(X, [1, 2], whole=True)
@case(X, (1, 2, 3), whole=True)
@case(X, {"kind": "point", "x": X, "z": 1}, whole=True)
@case(X, Box(1, 3), whole=True)
@case(X, Box(1, 4), whole=True)
@case(X, None, whole=True)
@case(X, "text", whole=True)
@case(X, 2.5, whole=True)
def match_statement(x, v):
    return x + 1, matched(v)


@case([X, Y], whole=True)
def match_tensors(xs):
    match xs:
        case [a, b]:
            return a + b
        case _:
            return None


@case(X, {"a": [1, {"b": (2, 3)}]}, whole=True)
def match_nested(x, v):
    match v:
        case {"a": [1, {"b": (p, q)}]}:
            return x * p + q


@case(X, whole=True)
def match_shape(x):
    match x.shape:
        case (2, n):
            return x.sum(1) + n
        case (n,):
            return x


@case(X, Box(X, 1))
def match_class_with_attribute(x, v):
    match v:
        case Box(a=gh.Tensor() as t):
            return t + 1


# -- exceptions ------------------------------------------------------------------------------------


@case(X, whole=True, modes=MODES)
def caught(x):
    try:
        raise ValueError("bad", 3)
    except ValueError as error:
        return x + 1, str(error), error.args, type(error).__name__


@case(X, line=True)
def raised(x):
    y = x + 1
    raise ValueError(f"shape {y.shape}")


@case(X, line=True)
def raised_class(x):
    raise KeyError


@case(X, line=True)
def raised_custom(x):
    raise Custom(3, detail=[1])


def fails(x, n):
    if n == 0:
        raise Custom(7)
    return fails(x, n - 1)


@case(X, line=True)
def raised_deep(x):
    x = x + 1
    return fails(x, 3)


@case(X, whole=True)
def caught_from_inlined(x):
    try:
        fails(x, 2)
    except Custom as error:
        return x * error.code, error


@case(X, whole=True)
def caught_by_base(x):
    try:
        raise Sub(1)
    except (KeyError, Custom) as error:
        return x, error.code


@case(X, line=True)
def not_caught(x):
    try:
        raise Custom(1)
    except (KeyError, ValueError):
        return x


@case(X, whole=True)
def else_and_finally(x):
    log = []
    try:
        y = x + 1
    except ValueError:
        log.append("no")
    else:
        log.append("else")
    finally:
        log.append("finally")
    return y, log


@case(X, [], whole=True)
def finally_after_return(x, log):
    try:
        return x + len(log)
    finally:
        log.append("finally")


@case(X, [])
def finally_after_raise(x, log):
    try:
        raise KeyError("k")
    finally:
        log.append(x)


@case(X, whole=True)
def finally_overrides(x):
    try:
        raise KeyError("k")
    finally:
        return x  # noqa: B012


@case(X, whole=True)
def finally_in_loop(x):
    log = []
    for i in range(4):
        try:
            if i == 1:
                continue
            if i == 3:
                break
            log.append(i)
        finally:
            log.append(f"f{i}")
    return x, log


@case(X)
def reraised(x):
    try:
        raise Custom(1)
    except Custom:
        x = x + 1
        raise


@case(X)
def bare_raise_outside(x):
    raise


@case(X)
def raise_from(x):
    try:
        {}["k"]
    except KeyError as error:
        raise Custom(2) from error


@case(X)
def raise_from_none(x):
    try:
        {}["k"]
    except KeyError:
        raise Custom(2) from None


@case(X)
def raise_in_handler(x):
    try:
        raise KeyError("first")
    except KeyError:
        raise ValueError("second")  # noqa: B904


@case(X)
def raise_in_finally(x):
    try:
        raise KeyError("first")
    finally:
        raise ValueError("second")


@case(X, whole=True)
def nested_handlers(x):
    log = []
    try:
        try:
            raise KeyError("a")
        except ValueError:
            log.append("no")
        finally:
            log.append("inner")
    except KeyError as error:
        log.append(str(error))
        try:
            raise Custom(1)
        except Custom as other:
            log.append(repr(other.__context__))
    return x, log


@case(X)
def handler_variable_is_deleted(x):
    error = 1
    try:
        raise KeyError
    except KeyError as error:  # noqa: F841
        pass
    return error


@case(X, whole=True)
def handler_in_loop(x):
    for v in (1, 0, 2):
        try:
            x = x + 4 // v
        except ZeroDivisionError as error:
            x = x - len(str(error))
    return x


@case(X, whole=True)
def errors_of_python(x):
    results = []
    for f in (
        lambda: 1 / 0,
        lambda: [][1],
        lambda: {}["k"],
        lambda: int("q"),
        lambda: None.a,
        lambda: 1 + "a",
        lambda: undefined_name,
        lambda: (1, 2).nothing,
        lambda: "abc".index("z"),
        lambda: len(5),
    ):
        try:
            f()
        except Exception as error:
            results.append((type(error).__name__, str(error)))
    return x, results


@case(X, line=True)
def library_error(x):
    return x + gh.ones((5, 7))


@case(X)
def library_error_caught(x):
    try:
        return x @ x
    except Exception as error:
        return type(error).__name__, str(error), x + 1


@case(X)
def raise_wrong_thing(x):
    raise 5


@case(X)
def raise_from_wrong_thing(x):
    raise KeyError("a") from 5


@case(X, ValueError("given"))
def raises_argument(x, error):
    raise error


@case(X, whole=True)
def exception_values(x):
    e = Custom(3, x)
    f = KeyError("k")
    f.__cause__ = e
    return e.detail, e.code, e.args, f


@case(X)
def exception_notes(x):
    error = ValueError("v")
    error.add_note("a note")
    raise error


@case(X)
def exception_group(x):
    try:
        raise ExceptionGroup("g", [KeyError("a"), ValueError("b")])
    except* KeyError as group:
        x = x + len(group.exceptions)
    except* ValueError:
        x = x * 2
    return x


@case(X, whole=True)
def asserts(x):
    assert x.ndim == 2
    assert x.shape[0] == 2, "never"
    return x + 1


@case(X, line=True)
def assert_fails(x):
    assert x.ndim == 3, f"got {x.ndim}"
    return x


@case(X)
def assert_fails_without_message(x):
    assert not x.shape


@case(X)
def assert_on_tensor(x):
    assert x.sum() > 0, "sum"
    assert (x >= 0).all()
    return x + 1


@case(X)
def assert_on_tensor_fails(x):
    assert x.sum() < 0, "the sum is positive"
    return x


@case(X)
def system_exit(x):
    raise SystemExit(3)


@case(X, whole=True)
def stop_iteration_handled(x):
    it = iter([])
    try:
        next(it)
    except StopIteration:
        return x + 1


@case(X, whole=True)
def try_in_comprehension_call(x):
    def safe(v):
        try:
            return x / (1 // v)
        except ZeroDivisionError:
            return None

    return [safe(v) for v in (1, 2, 0)]


@case(X, whole=True)
def mutation_before_error(x):
    log = []
    try:
        log.append(1)
        log[0] += "a"
    except TypeError:
        log.append(2)
    return log, x


@case(X, [1])
def mutation_stays_after_error(x, items):
    items.append(x + 1)
    raise KeyError("k")


# -- with ------------------------------------------------------------------------------------------


@case(X, [], whole=True, modes=MODES)
def with_user_class(x, log):
    with Managed(log) as m:
        m.log.append("body")
        x = x + 1
    return x


@case(X, [], whole=True)
def with_value(x, log):
    with Managed(log, value=x) as v, Managed(log, value=3) as w:
        return v + w


@case(X, [])
def with_error(x, log):
    with Managed(log):
        raise Custom(1)


@case(X, [], whole=True)
def with_swallows(x, log):
    with Managed(log, swallow=True):
        raise Custom(1)
    return x, log


@case(X, [], whole=True)
def with_in_loop(x, log):
    for i in range(4):
        with Managed(log):
            if i == 1:
                continue
            if i == 2:
                break
            x = x + i
    return x


@case(X, Managed([]), whole=True)
def with_argument(x, m):
    with m:
        x = x * 2
    return x


@case(X)
def with_wrong_object(x):
    with 3:
        return x


@case(X, [], whole=True)
def with_context_manager(x, log):
    with managing(log, 5) as v:
        x = x + v
    return x


@case(X, [], whole=True)
def with_context_manager_swallows(x, log):
    with managing(log):
        raise KeyError("k")
    return x


@case(X, [])
def with_context_manager_raises(x, log):
    with managing(log):
        raise Custom(1)


@case(X, [], whole=True)
def with_nested(x, log):
    with managing(log, 1) as a:
        with managing(log, 2) as b:
            x = x + a + b
        log.append("between")
    return x


@case(X, whole=True)
def with_suppress(x):
    with suppress(KeyError, ValueError):
        x = x + 1
        {}["k"]
        x = x + 10
    return x


@case(X, whole=True)
def with_nullcontext(x):
    with nullcontext(3) as v:
        return x + v


@case(X, [])
def with_exit_stack(x, log):
    with ExitStack() as stack:
        a = stack.enter_context(Managed(log, value=1))
        stack.callback(log.append, "callback")
        b = stack.enter_context(managing(log, 2))
        x = x + a + b
    return x


@case(X, [])
def with_exit_stack_error(x, log):
    with ExitStack() as stack:
        stack.enter_context(Managed(log, swallow=True))
        stack.enter_context(Managed(log))
        raise Custom(2)
    return x


@case(X, [])
def with_closing(x, log):
    class Thing:
        def close(self):
            log.append("closed")

    with contextlib.closing(Thing()):
        x = x + 1
    return x


@case(X.detach() + 0, whole=True)
def with_no_grad(x):
    with gh.no_grad():
        y = x * 2
    return y, y.requires_grad


@case(X, [], whole=True)
def decorated_by_context(x, log):
    @managing(log)
    def f(v):
        return v + 1

    return f(x), f(2)


def inside(log):
    with Managed(log):
        return "value"


@case(X, [], whole=True)
def return_inside_with(x, log):
    return inside(log), x + 1


@case(X, [], whole=True)
def with_and_try(x, log):
    try:
        with Managed(log):
            x = x + 1
            raise KeyError("inside")
    except KeyError as error:
        log.append(str(error))
    finally:
        log.append("finally")
    return x


@case(X, [], whole=True)
def generator_with_finally(x, log):
    def g():
        try:
            yield x
            yield x + 1
        finally:
            log.append("done")

    for y in g():
        log.append("step")
    return y


@case(X, [], hit=False)
def generator_left_in_with(x, log):
    def g():
        with Managed(log):
            yield x
            yield x + 1

    for _ in g():
        break
    return log


LOCK = threading.Lock()  # a context manager that is not written in Python


@case(X)
def with_lock(x):
    y = x * 2
    with LOCK:
        y = y + LOCK.locked()
    return y - LOCK.locked()


@case(X)
def with_lock_and_error(x):
    try:
        with LOCK:
            y = x + 1
            raise Sub(1)
    except Custom as error:
        y = y * 2 + error.code
    return y - LOCK.locked()


@case(X)
def with_open_file(x):
    with open(__file__) as file:
        y = x * len(file.readline())
    return y, file.closed


class Bare:
    pass


@case(X, Bare(), whole=True)
def attribute_error_of_an_object(x, o):
    try:
        scale = o.scale
    except AttributeError:
        scale = 2
    return x * scale


@case(X, whole=True)
def error_raised_in_a_callee(x):
    def check(n):
        if n > 1:
            raise ValueError(f"too large: {n}")
        return n

    for n in (1, 2):
        try:
            x = x + check(n)
        except ValueError as error:
            x = x * len(str(error)) + len(error.args)
    return x


@case(X, whole=True)
def errors_of_operations_and_their_text(x):
    texts = []
    for act in (lambda: x @ gh.ones((7, 7)), lambda: {}["k"], lambda: [][1], lambda: x.nothing):
        try:
            act()
        except (ValueError, LookupError, AttributeError) as error:
            texts += [type(error).__name__, str(error), repr(error)]
    return x + 1, texts


@case(X)
def break_in_a_handler(x):
    try:
        x = x + {}["k"]
    except KeyError as error:
        print("missing", error)
        x = x + 2
    try:
        x = x.nothing
    except AttributeError as error:
        gh.graph_break()
        x = x * len(error.name), error.obj is x
    return x


@case(X, modes=MODES[:2])
def handler_that_shows_the_traceback(x):
    def inner(n):
        return 1 // n

    try:
        x = x + inner(0)
    except ZeroDivisionError:
        entries = traceback.extract_tb(sys.exc_info()[2])
        return x, [(e.name, e.lineno) for e in entries if e.name == "inner"]
    return x


@case(X)
def caught_error_is_returned(x):
    try:
        x = x + 1 // 0
    except ZeroDivisionError as error:
        kept = error
    try:
        raise KeyError("outer") from kept
    except KeyError as error:
        return x, error


@pytest.mark.parametrize(("fn", "args", "options"), case)
def test_control(fn, args, options):
    check(fn, *args, **options)
