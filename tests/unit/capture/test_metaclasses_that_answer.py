"""A metaclass that answers every name: its classes have no more special methods for that."""

import operator

import pytest

import glasshouse as gh


@gh.disable
def note(owner, value):
    owner.__dict__["noted"] = value


class Answers(type):
    """A metaclass whose classes seem to have every attribute."""

    def __getattr__(cls, name):
        return 6


class Silent(metaclass=Answers):
    """An object without special methods."""


class Sets(metaclass=Answers):
    def __set__(self, owner, value):
        note(owner, value)


class Gets(metaclass=Answers):
    def __get__(self, owner, kind):
        return "got"


class Both(Gets, Sets):
    """A data descriptor."""


class Holder:
    silent, sets, gets, both = Silent(), Sets(), Gets(), Both()

    def __init__(self):
        self.plain = Silent()


READS = [f"(type({x}).__name__, isinstance({x}, str))" for x in ("h.silent", "h.sets", "h.gets")]
USES = (
    *READS,
    "h.both",
    "put(h, 'silent', 3)",
    "put(h, 'sets', 3)",
    "put(h, 'gets', 3)",
    "put(h, 'both', 3)",
    "put(Holder, 'silent', 3)",
    "put(Holder, 'both', 3)",
    "len(h.plain)",
    "bool(h.plain)",
    "[*h.plain]",
    "1 in h.plain",
    "h.plain[0]",
    "h.plain()",
    "h.plain + 1",
    "1 + h.plain",
    "h.plain < 1",
    "h.plain == 1",
    "-h.plain",
    "int(h.plain)",
    "range(h.plain)",
    "next(h.plain)",
    "hash(h.plain) == object.__hash__(h.plain)",
    "str(h.plain)[:9]",
    "format(h.plain, 'x')",
    "entered(h.plain)",
    "isinstance(1, type(h.plain))",
    "type(h.plain).anything",
    "hasattr(h.plain, 'anything')",
    "getattr(h.plain, 'anything', 2)",
    "type(copy.copy(h.plain)).__name__",
    "sum([h.plain])",
    "sorted([h.plain, h.plain])",
    "max(h.plain, h.plain)",
    "[0, 1][h.plain]",
    "abs(h.plain)",
    "round(h.plain)",
    "iter(h.plain)",
    "reversed(h.plain)",
    "h.plain.__class__.__name__",
    "changed(h.plain)",
)


def put(owner, name, value):
    setattr(owner, name, value)
    return owner.__dict__[name]


def entered(context):
    with context as value:
        return value


def changed(value):
    value += 1
    return value


def outcome(fn) -> str:
    try:
        return str(fn())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("use", USES)
def test_special_methods_are_those_of_the_class(use, monkeypatch):
    names = globals() | {"h": Holder()}
    exec(f"def fn(): return {use}", names)
    captured = gh.optimize("eager")(names["fn"])
    for _ in range(3):
        results = []
        for fn in (names["fn"], captured):
            names["h"] = Holder()
            with monkeypatch.context() as context:
                context.setattr(Holder, "silent", Silent())
                context.setattr(Holder, "both", Both())
                results.append(outcome(fn))
        assert results[0] == results[1]


def test_a_descriptor_that_loses_its_setter_is_none_any_more():
    def fn(holder):
        setattr(holder, "sets", 3)  # noqa: B010
        return getattr(holder, "sets", None)

    captured = gh.optimize("eager")(fn)
    for _ in range(2):
        assert captured(Holder()) is fn(Holder()) is Holder.sets
    setter = Sets.__set__
    try:
        del Sets.__set__
        assert captured(Holder()) == fn(Holder()) == 3
    finally:
        Sets.__set__ = setter
    assert captured(Holder()) is Holder.sets


# -- metaclasses that say which classes derive from which -----------------------------------------


def family(answer):
    """Two classes, whose metaclass says whether one derives from the other."""

    class Deciding(type):
        __subclasscheck__ = __instancecheck__ = lambda cls, other: answer

    class Base(metaclass=Deciding):
        def __init__(self, *args):
            self.made_by = "Base"

        def __add__(self, other):
            return "Base.__add__"

        def __lt__(self, other):
            return "Base.__lt__"

        def name(self):
            return "Base.name"

    class Derived(Base):
        def __init__(self, *args):
            super().__init__(*args)
            self.kind = super().name()

        def __radd__(self, other):
            return "Derived.__radd__"

        def __gt__(self, other):
            return "Derived.__gt__"

        @classmethod
        def missing(cls):
            return super().missing()

    class Other(metaclass=Deciding):
        def __new__(cls):
            return Derived()

        def __init__(self):
            self.kind = "Other.__init__"

        def __radd__(self, other):
            return "Other.__radd__"

    return Base, Derived, Other


RELATIONS = (
    "Base() + Derived()",
    "Base() + Other()",
    "Base() < Derived()",
    "Derived() + Base()",
    "Derived().kind",
    "Derived().made_by",
    "Other().kind",
    "Derived.missing()",
    "super(Derived, Derived()).name()",
    "super(Base, Derived).missing()",
    "isinstance(3, Base)",
    "issubclass(Other, Base)",
)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("answer", [True, False])
def test_classes_derive_from_their_bases_whatever_a_metaclass_answers(answer, relation):
    names = dict(zip(("Base", "Derived", "Other"), family(answer), strict=True))
    exec(f"def use(x):\n    return x * 2, {relation}", names)

    def seen(call):
        try:
            return str(call(gh.ones(2)))
        except Exception as error:
            return type(error).__name__, str(error)

    captured = gh.optimize("eager")(names["use"])
    with gh.capture.config.override(raise_internal_errors=True):
        assert [seen(captured) for _ in range(2)] == [seen(names["use"])] * 2


def never_equal(cls, other):
    return False


HASHES = {"none": None, "constant": lambda cls: 7, "failing": lambda cls: [][1]}
USED = ("A().k", "A.k", "isinstance(A(), A)", "str(3 in A())", "len({1: A()})", "A() is not A()",
        "contains(A(), 1)")  # fmt: skip
WAYS = {
    "inlined": "def use(x):\n    return x * 2, {}",
    "after a break": "def use(x):\n    print(end='')\n    return x * 2, {}",
    "in a generator": """
def use(x):
    def drawn():
        yield {}
    found = []
    found.extend(drawn())
    return x * 2, found
""",
}


@pytest.mark.parametrize("used", USED)
@pytest.mark.parametrize("hash_", HASHES)
@pytest.mark.parametrize("way", WAYS)
def test_classes_are_known_without_the_hash_of_their_metaclass(way, hash_, used):
    meta = type("Meta", (type,), {"__eq__": never_equal, "__hash__": HASHES[hash_]})
    names = {"A": meta("A", (), {"k": 4}), "contains": operator.contains}
    exec(WAYS[way].format(used), names)

    def seen(call):
        try:
            return str(call(gh.ones(2)))
        except Exception as error:
            return type(error).__name__, str(error)

    captured = gh.optimize("eager")(names["use"])
    with gh.capture.config.override(raise_internal_errors=True):
        assert [seen(captured) for _ in range(2)] == [seen(names["use"])] * 2
