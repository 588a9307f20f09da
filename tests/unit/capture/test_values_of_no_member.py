"""Enumerations called with a value of no member: capture relies on all that Python looks up."""

import enum

import pytest

import glasshouse as gh

KINDS = {"Enum": enum.Enum, "IntEnum": enum.IntEnum, "Flag": enum.Flag, "IntFlag": enum.IntFlag}
VALUES = (1, 2, 3, 77, -5, None, "text", 2.0)


def find_red(cls, value):
    return cls.RED


def refuse(cls, value):
    raise LookupError(value)


CHANGES = {
    "a member found": lambda cls: setattr(cls, "_missing_", classmethod(find_red)),
    "an error": lambda cls: setattr(cls, "_missing_", classmethod(refuse)),
    "no member": lambda cls: setattr(cls, "_missing_", classmethod(lambda cls, value: None)),
    "another class": lambda cls: setattr(cls, "_missing_", classmethod(lambda cls, value: 5)),
    "values": lambda cls: cls._value2member_map_.update(dict.fromkeys(VALUES, cls.RED)),
    "a value less": lambda cls: cls._value2member_map_.pop(1),
}  # fmt: skip


def outcomes(kind, value, change, captured):
    """A member's name, or an error, before a change of the class and after it."""
    gh.reset()
    cls = KINDS[kind]("Color", {"RED": 1, "BLUE": 2})

    def look_up(x):
        try:
            result = cls(value)
        except Exception as error:
            return x + 1, (type(error).__name__, str(error))
        return x + 1, (result.name, result.value)

    run = gh.optimize("eager")(look_up) if captured else look_up
    x = gh.ones(1)
    before = [run(x)[1] for _ in range(2)]
    CHANGES[change](cls)
    return [*before, *(run(x)[1] for _ in range(2))]


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_values_are_looked_up_in_each_call(kind, change, value):
    expected = outcomes(kind, value, change, False)
    assert outcomes(kind, value, change, True) == expected


def test_a_value_of_no_member_leaves_one_graph():
    color = enum.Enum("Color", {"RED": 1})

    @gh.optimize("eager", nopython=True)
    def look_up(x):
        try:
            color(77)
        except ValueError as error:
            return x + 1, str(error)

    assert look_up(gh.ones(1))[1] == "77 is not a valid Color"
