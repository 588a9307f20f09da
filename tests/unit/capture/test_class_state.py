"""State of classes and metaclasses: changes between calls, and within them, are seen."""

import enum

import pytest

import glasshouse as gh


class Settings:
    def __init__(self):
        self.n = 1

    def get(self):
        return self.n


class Counting(type):
    count = 0

    def __call__(cls, *args, **kwargs):
        Counting.count += 1
        return super().__call__(*args, **kwargs)


class Once(type):
    instances: dict = {}

    def __call__(cls):
        if cls not in cls.instances:
            cls.instances[cls] = super().__call__()
        return cls.instances[cls]


class Named(type):
    count = 0
    settings = Settings()
    log: list = []

    @property
    def title(cls):
        return cls.__name__


class Holder:
    settings = Settings()
    pair = (1, [2])
    rule = staticmethod(lambda: 1)


class Child(metaclass=Named):
    pass


class Counted(metaclass=Counting):
    def __init__(self, k=1):
        self.k = k


class Single(metaclass=Once):
    def __init__(self):
        self.n = 0


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Flags(enum.IntFlag):
    READ = 1
    WRITE = 2


def reset():
    Holder.settings, Holder.pair, Holder.rule = Settings(), (1, [2]), staticmethod(lambda: 1)
    Named.count, Named.settings, Named.log, Named.factor = 0, Settings(), [], 1.0
    Counting.count = 0
    Once.instances.clear()
    if "factor" in vars(Child):
        del Child.factor


def change(number):
    """Make the change between the calls."""
    if number == 3:
        Holder.settings.n, Named.settings.n, Named.count, Named.factor = 10, 20, 5, 4.0
        Holder.rule = staticmethod(lambda: 2)
    if number == 4:
        Holder.settings, Named.settings, Child.factor = Settings(), Settings(), 7.0


def object_of_a_class(x):
    Holder.settings.n += 1
    return x * Holder.settings.n


def method_of_an_object_of_a_class(x):
    return x * Holder.settings.get()


def list_in_a_tuple_of_a_class(x):
    Holder.pair[1].append(3)
    return x * len(Holder.pair[1])


def static_method_is_replaced(x):
    return x * Holder.rule()


def number_of_a_metaclass(x):
    Named.count += 1
    return x * Child.count


def object_of_a_metaclass(x):
    Child.settings.n += 1
    return x * Child.settings.n


def list_of_a_metaclass(x):
    Child.log.append(1)
    return x * len(Child.log)


def class_hides_its_metaclass(x):
    return x * Child.factor, Child.title


def metaclass_makes(x):
    instance = Counted()
    instance.k += 1
    return x * instance.k, instance.k, Counting.count


def metaclass_makes_with_arguments(x):
    first, second = type.__call__(Counted, 4), Counted(k=3)
    return x * first.k * second.k, first is second, type(first) is Counted


def metaclass_makes_one(x):
    one = Single()
    one.n += 1
    return x * one.n, one.n


def class_made_by_a_metaclass(x):
    return x * Counting("Made", (), {"z": 2})().z


def members_of_enumerations(x):
    return x * Color(2).value, Color["RED"], Flags(3), Flags.READ | Flags.WRITE


def no_such_member(x):
    try:
        return Color(5)
    except ValueError as error:
        return str(error), x


def enumeration_made_inside(x):
    instance = enum.Enum("Made", "a b")
    return x * instance.b.value, instance.a.name


CASES = [
    object_of_a_class, method_of_an_object_of_a_class, list_in_a_tuple_of_a_class,
    static_method_is_replaced, number_of_a_metaclass, object_of_a_metaclass, list_of_a_metaclass,
    class_hides_its_metaclass, metaclass_makes, metaclass_makes_with_arguments,
    metaclass_makes_one, class_made_by_a_metaclass, members_of_enumerations, no_such_member,
    enumeration_made_inside,
]  # fmt: skip


def story(fn, run):
    """Return the results of six calls, with changes in between, and the state that is left."""
    reset()
    messages = []
    for number in range(6):
        change(number)
        results = run(gh.ones(2))
        parts = results if isinstance(results, tuple) else (results,)
        messages.append([x.tolist() if isinstance(x, gh.Tensor) else x for x in parts])
    return messages, Counting.count, Named.count, Named.log, Holder.pair, Holder.settings.n


@pytest.mark.parametrize("fn", CASES, ids=lambda fn: fn.__name__)
def test_changes_are_seen(fn):
    assert story(fn, gh.optimize("eager")(fn)) == story(fn, fn)


def test_objects_of_a_metaclass_are_new_in_each_call():
    captured = gh.optimize("eager")(lambda x: (x, Counted()))
    results = [captured(gh.ones(2))[1] for _ in range(4)]
    assert len(set(map(id, results))) == 4
    assert captured.hits >= 1
