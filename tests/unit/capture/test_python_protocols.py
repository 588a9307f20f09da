"""Python's protocols under capture, as CPython's own tests try them: special methods that are no
functions, classes that look up their attributes themselves, what reads the frame that called it,
functions as values, what is registered, types of caught exceptions."""

import abc
import collections.abc
import gc
import operator
import re
import warnings

import pytest

import glasshouse as gh


class Box(dict):
    __setattr__ = dict.__setitem__
    __neg__ = dict.copy


class Shifted(list):
    def __getitem__(self, i):
        return list.__getitem__(self, i) + 100


class Watched:
    log: list = []

    def __getattribute__(self, name):
        Watched.log.append(name)
        return object.__getattribute__(self, name)


class Fallback:
    def __getattribute__(self, name):
        return object.__getattribute__(self, name)

    def __getattr__(self, name):
        return "there is no " + name


class Setting:
    def __set__(self, obj, value):
        obj.__dict__["a"] = value


class WithSetting:
    a = Setting()


class Base:
    def __add__(self, other):
        return "add"

    def __radd__(self, other):
        return "radd"


class Derived(Base):
    pass


class Blocked(Base):
    __iadd__ = None


class Chosen:
    def __new__(cls, arg):
        return object.__new__(Begun)


class Begun(Chosen):
    def __init__(self, arg):
        self.arg = arg


class Wide(float):
    pass


class Number:
    def __init__(self, value):
        self.value = value

    def __float__(self):
        return self.value

    def __len__(self):
        return self.value

    def __str__(self):
        return self.value

    def __bool__(self):
        return self.value


class Whole(int):
    def __eq__(self, other):
        return int(self) == int(other)

    __hash__ = int.__hash__


class Plain:
    pass


Kind = abc.ABCMeta("Kind", (), {})


def read_at_once(obj):
    Watched.log.clear()
    obj.x = 3
    return obj.x, list(Watched.log)


class Refusing:
    def __iter__(self):
        raise LookupError("refused")


def caught(fn, *args, **kwargs):
    try:
        return fn(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)


def with_setting(x):
    instance = WithSetting()
    before = type(instance.a).__name__
    instance.a = x
    return before, instance.a


def box_items(x):
    instance = Box()
    instance.y = x
    return instance["y"], -instance


def adds():
    x = Blocked()
    x += 1
    return x


def class_method_set():
    class C:
        pass

    instance = C()
    C.method = lambda self: 42
    C.__len__ = lambda self: 5
    return instance.method(), len(instance)


def names_of_frame(x):
    junk = x
    return dir(), [junk for y in (1,)]


def module_of_made():
    return collections.namedtuple("P", "a b").__module__, type("Q", (), {}).__module__


def line_of_warning():
    with warnings.catch_warnings(record=True) as kept:
        warnings.simplefilter("always")
        warnings.warn("here", stacklevel=1)
        float(Number(Wide(2.0)))
    return [(x.lineno, x.filename, x.category) for x in kept]


def annotations():
    def fn(a: "one", b: int = 3): ...  # noqa: F821

    fn.__annotations__["b"] = str
    return fn.__annotations__


def texts_of_class():
    texts = []
    for doc in ("a", "b", "a"):
        Plain.__doc__ = doc
        texts.append((Plain.__doc__, Plain.__name__))
    return texts


def registered(cls):
    before = issubclass(cls, Kind), isinstance(cls(), Kind)
    Kind.register(cls)
    return before, issubclass(cls, Kind), isinstance(cls(), Kind)


def text_of(fn):
    return re.sub("0x.*", "", repr(fn)), f"{fn}" == repr(fn), hash(fn) == hash(fn), str(fn)


def truth_of_notimplemented():
    with warnings.catch_warnings(record=True) as kept:
        warnings.simplefilter("always")
        try:
            if NotImplemented:
                pass
        except TypeError as error:  # from Python 3.14 on
            return str(error)
    return len(kept)


def own_list():
    results = []
    results.append(results)
    return repr(results)


def sent_later(n):
    def numbers():
        got = yield 1
        yield got * 2

    g = numbers()
    first = next(g)
    print("", end="")
    return first, g.send(n)


def optional(obj):
    return getattr(obj, "missing", None), hasattr(obj, "missing")


class Asks:
    def __getattr__(self, name):
        raise AttributeError(warnings.catch_warnings.__name__ + eval("name"))


CASES = {
    "setattr_of_dict": (box_items, [1], [2]),
    "getitem_of_base": (lambda x: Shifted([x, 1])[0], [1], [2]),
    "looked_up": (lambda: read_at_once(Watched()), [], []),
    "fallback": (lambda x: (Fallback().a, getattr(Fallback(), "b", x)), [1], [1]),
    "data_descriptor": (with_setting, [1], [2]),
    "reflected": (lambda: (Base() + Derived(), Derived() + Base(), 1 + Derived()), [], []),
    "blocked": (lambda: caught(adds), [], []),
    "init_of_made": (lambda x: Chosen(x).arg, [1], [2]),
    "keywords": (lambda: (caught(int, x=1), caught(bool, x=2), str(object=3)), [], []),
    "counts": (lambda: [caught(f, 1, 2, 3, 4) for f in (len, bool, getattr, reversed)], [], []),
    "new_of_object": (lambda: [caught(object.__new__, x, 1) for x in (Plain, Base)], [], []),
    "init_of_bytes": (lambda x: bytearray.__init__(x, b"ab") or x, [bytearray()], [bytearray()]),
    "class_function": (class_method_set, [], []),
    "dir": (names_of_frame, [1], [2]),
    "modules": (module_of_made, [], []),
    "warning": (line_of_warning, [], []),
    "annotations": (annotations, [], []),
    "class_texts": (texts_of_class, [], []),
    "registered": (registered, [type("A", (), {})], [type("B", (), {})]),
    "text_of_function": (text_of, [lambda: 1], [lambda: 1]),
    "notimplemented": (truth_of_notimplemented, [], []),
    "own_list": (own_list, [], []),
    "sent": (sent_later, [1], [2]),
    "optional": (optional, [Asks()], [3]),
    "subclass_of_int": (lambda x: (-x == Whole(-3), Whole(3) == x, Whole(3) == 3), [3], [4]),
    "bytes": (lambda a, b: (a == b, [a] == [b], a in [b]), [b"a", bytearray(b"a")], [b"a", 3]),
    "nan": (lambda x: (x in [x], [x] == [x], x in (1, x)), [float("nan")], [1.0]),
    "results": (
        lambda x: [caught(f, Number(x)) for f in (float, len, str, bool)],
        [Wide(2.0)],
        [-1],
    ),
    "bound_c_method": (
        lambda p, s: p.search(s).group(),
        [re.compile("a+"), "baa"],
        [re.compile("b"), "ab"],
    ),
    "eager_iterators": (
        lambda x: [caught(f, x) for f in (zip, enumerate)] + [caught(map, str, x)],
        [Refusing()],
        [Refusing()],
    ),
    "ids": (lambda x: list(map(id, [x, x]))[0] == id(x), [(1, 2)], [(3, 4)]),
    "setstate": (lambda x: [it.__setstate__(1) or list(it) for it in [iter(x)]], ["abc"], ["ab"]),
    "long_ranges": (
        lambda n: (next(reversed(range(n))), next(zip(range(n), "ab")), type(reversed(range(n)))),
        [1 << 62],
        [1 << 61],
    ),
    "length_hint": (lambda x: operator.length_hint(reversed(x)), ["abc"], ["ab"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["whole", "inlined"])
def test_protocol(name, kind):
    fn, *sets = CASES[name]
    plain = [fn(*args) for args in (sets[0], sets[0], sets[1], sets[0])]
    inner = fn if kind == "whole" else lambda *args: fn(*args)
    captured = gh.optimize("eager")(inner)
    got = [captured(*args) for args in (sets[0], sets[0], sets[1], sets[0])]
    if name == "registered":  # what plain Python registers stays so
        plain = [((True, True), True, True)] * 4
    assert got == plain


def test_other_classes_may_be_registered_meanwhile():
    """Imports register classes: what was asked is asked again, and holds."""

    class Mine:
        pass

    @gh.optimize("eager")
    def fn(x):
        return x + (1 if isinstance(x, Kind) else 2), isinstance(mine, Kind)

    mine, x = Mine(), gh.ones(3)
    for _ in range(3):
        collections.abc.Sized.register(type("Other", (), {}))
        assert fn(x)[1] is False
    assert len(fn.capture.entries) == 1 and fn.hits == 2
    Kind.register(Mine)
    assert fn(x)[1] is True and fn(x)[1] is True
    assert fn.hits == 3


def test_handler_asks_for_type():
    def first(error):
        try:
            print(end="")
            raise error
        except ValueError:
            return "value"
        except KeyError:
            return "key"

    def second(fn):
        try:
            fn()
        except ValueError:
            return "value"
        except KeyError:
            return "key"

    def raiser(kind):
        def fn():
            raise kind

        return gh.disable(fn)

    for fn, make in ((first, lambda kind: kind()), (second, raiser)):
        captured = gh.optimize("eager")(fn)
        kinds = (ValueError, KeyError, ValueError, KeyError)
        assert [captured(make(kind)) for kind in kinds] == ["value", "key"] * 2


def test_exit_gets_type():
    class Context:
        def __enter__(self):
            return self

        def __exit__(self, kind, error, trace):
            kinds.append((kind, type(error)))
            return True

    @gh.optimize("eager")
    def fn(context, error):
        with context:
            print(end="")
            raise error

    kinds: list = []
    for error in (ValueError(), KeyError(), ValueError()):
        fn(Context(), error)
    assert kinds == [(ValueError,) * 2, (KeyError,) * 2, (ValueError,) * 2]


def test_attributes_of_function():
    def fn():
        return 1

    fn.author = "Cleese"
    assert gh.optimize("eager")(fn).author == "Cleese"


@pytest.mark.slow
def test_long_computation_without_tensors():
    @gh.optimize("eager")
    def fn(n):
        total = 0
        for i in range(n):
            total += i % 7
        return total

    n = 40_000
    assert fn(n) == sum(i % 7 for i in range(n))
    assert any("without tensors" in reason for _, reason, _ in fn.capture.breaks)


def test_iterators_inside_a_generator_go_on():
    class Letters:
        def __iter__(self):
            return (x for x in "abc")

    @gh.optimize("eager")
    def fn(numbers):
        pairs = []
        for number, letter in zip(numbers, Letters(), strict=True):
            print(end="")
            pairs.append((number, letter))
        return pairs

    for _ in range(3):
        assert fn([1, 2, 3]) == [(1, "a"), (2, "b"), (3, "c")]


def test_classes_live_as_long_as_their_function():
    @gh.optimize("eager")
    def fn():
        class Parent:
            pass

        class Child(Parent):
            pass

        print(end="")
        return gh.disable(names_of_subclasses)(Parent)

    for _ in range(3):
        assert fn() == ["Child"]


def names_of_subclasses(cls):
    gc.collect()
    return [x.__name__ for x in cls.__subclasses__()]


def test_objects_that_make_others_without_end():
    class Endless:
        def __init__(self):
            self.inner = Endless()

    @gh.optimize("eager")
    def fn():
        try:
            Endless()
        except RecursionError:
            return "too deep"

    assert [fn(), fn()] == ["too deep"] * 2


def test_identity_of_functions():
    def make():
        return lambda: 1

    f, g = make(), make()
    captured = gh.optimize("eager")(lambda a, b: (a is b, a == b))
    assert [captured(f, f), captured(f, g), captured(g, g)] == [
        (True,) * 2,
        (False,) * 2,
        (True,) * 2,
    ]


class Answer:
    """An object whose special methods return `answer`, whatever that is."""

    def __init__(self, answer):
        self.answer = answer

    def answered(self, *_):
        return self.answer

    __len__ = __hash__ = __repr__ = __str__ = __index__ = __int__ = __float__ = answered
    __bool__ = __length_hint__ = answered


ANSWERS = [None, "a", b"a", 2.5, True, 0, -1, 3, 2**62, 2**64, (), [1], Answer(1)]
ASKED = [len, hash, repr, str, operator.index, int, float, bool, operator.length_hint]


@pytest.mark.parametrize("asked", ASKED, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("answer", ANSWERS, ids=lambda x: type(x).__name__)
def test_answers_of_special_methods_that_python_refuses(asked, answer):
    def fn(obj):
        try:
            return asked(obj)
        except Exception as error:
            return type(error), str(error)

    captured = gh.optimize("eager")(fn)
    wanted = fn(Answer(answer))
    for _ in range(2):
        got = captured(Answer(answer))
        assert type(got) is type(wanted) and got == wanted
