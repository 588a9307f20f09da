"""Attributes of objects whose class finds, sets or deletes them in Python, written to and read."""

import math
import weakref

import pytest

import glasshouse as gh

CALLS = 3


class Constant:
    __getattribute__ = lambda self, name: 7  # noqa: E731


class Adding:
    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        return value + 10 if name == "a" else value


class Catching:
    def __getattribute__(self, name):
        try:
            return object.__getattribute__(self, name)
        except AttributeError:
            return -5


class Finding:
    def __getattr__(self, name):
        return f"no {name}"


class Setting:
    def __setattr__(self, name, value):
        super().__setattr__(name, value + 1)


class Deleting:
    def __delattr__(self, name):
        object.__setattr__(self, name, -1)


class All(Adding, Setting, Deleting, Finding):
    pass


class Slots:
    __slots__ = ("a", "b")

    def __getattribute__(self, name):
        value = object.__getattribute__(self, name)
        return value * 2 if name == "a" else value


KINDS = (Constant, Adding, Catching, Finding, Setting, Deleting, All, Slots)
BODIES = [
    "o.a = 1\nr = o.a",
    "o.a = 1\ndel o.a\nr = o.a",
    "r = hasattr(o, 'a')\ndel o.a\nr = r, hasattr(o, 'a')",
    "o = K()\no.a = 2\nr = o.a",
    "o = K()\no.a = 2\nr = getattr(o, 'a', 3)\ndel o.a\nr = r, getattr(o, 'a', 3)",
    "setattr(o, 'a', 4)\nr = o.a + o.a",
    "o.b = 3\nr = o.b",
    "o.a += 1\nr = o.a",
    "def read(): return o.a\no.a = 3\nr = read()",
    "o.__dict__['a'] = 9\nr = o.a",
    "o.a = x.shape[0]\nr = [o.a for _ in range(2)]",
    "object.__setattr__(o, 'a', 5)\nr = o.a, object.__getattribute__(o, 'a')",
    "object.__delattr__(o, 'a')\ntry: r = o.a\nexcept AttributeError as error: r = str(error)",
    "try: del o.b\nexcept AttributeError as error: r = str(error)\nelse: r = o.b",
    "o.a = x.sum()\nr = o.a is not None",
    "p = o\np.a = 6\nr = o.a, p.a",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", BODIES)
def test_reads_after_writes_are_what_python_gives(kind, body):
    names = {"K": kind}
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    exec(f"def fn(x, o):\n{lines}    return r", names)
    fn, captured = names["fn"], gh.optimize("eager")(names["fn"])

    def outcome(fn):
        result = kind()
        object.__setattr__(result, "a", 1)
        try:
            return fn(gh.ones(2), result)
        except Exception as error:
            return type(error).__name__, str(error)

    expected = outcome(fn)
    with gh.capture.config.override(raise_internal_errors=True):
        assert [outcome(captured) for _ in range(CALLS)] == [expected] * CALLS


@pytest.mark.parametrize("name", ["__wrapped__", "extra", "__dict__", "__text_signature__"])
def test_what_a_function_lacks_another_may_have(name):
    names = {}
    exec(
        f"def fn(x):\n    try: return f.{name}\n    except AttributeError as e: return str(e)",
        names,
    )
    captured = gh.optimize("eager")(names["fn"])

    def without(v=1):
        return v

    def with_parts(v=1):
        return v * 2

    for key in ("__wrapped__", "extra"):
        setattr(with_parts, key, 3)
    for f in (without, with_parts, without, with_parts):
        names["f"] = f
        expected = names["fn"](gh.ones(2))
        assert [captured(gh.ones(2)) for _ in range(CALLS)] == [expected] * CALLS


def test_a_class_attribute_becomes_a_data_descriptor():
    class Found:
        value = 2

        def __get__(self, obj, owner=None):
            return self.value

    class Holder:
        factor = Found()

    holder = Holder()
    fn = lambda x: x * holder.factor  # noqa: E731
    captured, x = gh.optimize("eager")(fn), gh.ones(1)
    vars(holder)["factor"] = 5
    assert [captured(x).item() for _ in range(CALLS)] == [5] * CALLS
    Found.__set__ = lambda self, obj, value: None
    assert captured(x).item() == fn(x).item() == 2
    del Found.__set__
    assert captured(x).item() == fn(x).item() == 5


def test_an_object_gains_what_the_function_writes_to_its_class():
    class Holder:
        word = "class"

    holder = Holder()

    def fn(x):
        Holder.word = "written"
        return holder.word, x

    captured, x = gh.optimize("eager")(fn), gh.ones(1)
    assert [captured(x)[0] for _ in range(CALLS)] == ["written"] * CALLS
    holder.word = "own"
    assert captured(x)[0] == fn(x)[0] == "own"


def test_an_object_without_a_dict_may_answer_for_one():
    class Holder:
        __slots__ = ()

        def __getattr__(self, name):
            return f"no {name}"

    fn = lambda x, holder: (holder.__dict__, x)  # noqa: E731
    captured = gh.optimize("eager")(fn)
    assert [captured(gh.ones(1), Holder())[0] for _ in range(CALLS)] == ["no __dict__"] * CALLS


def test_a_proxy_raises_in_the_code_of_the_user():
    class Owner:
        value = 4

    owner = Owner()
    proxy, table = weakref.proxy(owner), weakref.WeakValueDictionary(a=owner)

    def fn():
        out = []

        def count():
            yield len(table)

        def read():
            yield proxy.value

        out.extend(count())
        try:
            out.extend(read())
        except ReferenceError as error:
            out.append(str(error))
        return out

    captured = gh.optimize("eager")(fn)
    assert [captured(), captured()] == [fn(), fn()]
    del owner
    for _ in range(3):
        assert captured() == fn()


def test_the_dict_of_a_function_that_was_written_to_is_read_in_a_generator():
    def marked():
        pass

    def fn(n):
        marked.tag = n
        return [*(marked.__dict__.get("tag") for _ in range(2))]

    captured = gh.optimize("eager")(fn)
    assert [captured(n) for n in (1, 1, 2)] == [[1, 1], [1, 1], [2, 2]]


def test_super_that_is_bound_to_no_object_has_no_methods():
    class Base:
        call = classmethod(lambda cls, v=1: v)

    class Child(Base):
        def call(self, *args):
            return super().call(*args)

    def fn(this):
        try:
            return Child.call(this)
        except (AttributeError, TypeError):  # CPython raises the second where it specialized
            return "no method"

    captured = gh.optimize("eager")(fn)
    for this in (None, None, Child(), None):
        assert captured(this) == fn(this)


def test_the_namespace_of_a_module_is_read_in_a_generator():
    def fn():
        return [*("ones" in gh.__dict__ for _ in range(2))]

    captured = gh.optimize("eager")(fn)
    assert captured() == captured() == [True, True]


# -- what capture itself reads of an object -------------------------------------------------------

READ = []


def count(self, name):
    READ.append(name)
    return object.__getattribute__(self, name)


def refuse(self, name):
    raise AttributeError(name)


FINDERS = {"constant": lambda self, name: 5, "counting": count, "refusing": refuse}
BASES = (object, Exception, list, dict, tuple, int)


def in_a_break(cls, x):
    new = cls()
    object.__setattr__(new, "z", x * 2)
    print(end="")
    return new, x * 2


def beside_a_constant(cls, x):
    new, five = cls(), int("5")
    print(end="")
    return new, x * five


def after_a_refusal(cls, x):
    x = x * (Five() == 5)
    try:
        return math.trunc(cls()), x
    except (TypeError, AttributeError) as error:
        return type(error).__name__, x


def as_raised(cls, x):
    try:
        raise cls()
    except Exception as error:
        return error, x * 2


def from_another(cls, x):
    try:
        raise ValueError from cls()
    except Exception as error:
        cause = BaseException.__cause__.__get__(error)
        return cause, BaseException.__traceback__.__get__(cause) is None, x * 2


class Five(Exception):
    __new__ = lambda cls: 5  # noqa: E731


def seen_of(function, cls):
    """Return the results of a call, or its error, and the attributes that it read."""
    READ.clear()
    try:
        results = function(cls, gh.ones(2))
    except Exception as error:
        return type(error).__name__, list(READ)
    shown = []
    for result in results:
        if type(result) is cls:
            names = object.__dir__(result) if cls is object else dir(cls)
            shown.append((cls.__name__, "z" in names, own_z(result)))
        else:
            shown.append(str(result))
    return shown, list(READ)


def own_z(value):
    try:
        return str(object.__getattribute__(value, "z"))
    except AttributeError:
        return None


@pytest.mark.parametrize("finder", FINDERS)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(
    "function", [in_a_break, beside_a_constant, after_a_refusal, as_raised, from_another]
)
def test_capture_reads_objects_without_their_own_lookup(function, base, finder):
    cls = type("New", (base,), {"__getattribute__": FINDERS[finder]})
    want, captured = seen_of(function, cls), gh.optimize("eager")(function)
    with gh.capture.config.override(raise_internal_errors=True):
        assert [seen_of(captured, cls) for _ in range(2)] == [want, want]
