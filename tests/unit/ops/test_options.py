"""Checks of options: a value of any type is refused with the options' names."""

import numpy as np
import pytest

from glasshouse.base.errors import OptionError, check_known
from glasshouse.ops.checks import check_option

OPTIONS = {
    "dict": {"a": 1, "b": 2},
    "tuple": ("a", "b"),
    "list": ["a", "b"],
    "set": {"a", "b"},
    "keys": {"a": 1, "b": 2}.keys(),
}
OTHERS = [[], {}, set(), ["a"], {"a": 1}, None, 0, float("nan"), "c", b"a", np.float32(1), object]


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("value", OTHERS, ids=repr)
def test_other_values_of_any_type_are_refused(kind, value):
    for check in (
        lambda: check_option("f", "option", value, OPTIONS[kind]),
        lambda: check_known("f", "an option", value, OPTIONS[kind]),
    ):
        with pytest.raises(OptionError, match="f: expected"):
            check()


@pytest.mark.parametrize("kind", OPTIONS)
def test_options_come_back(kind):
    assert check_option("f", "option", "a", OPTIONS[kind]) == "a"
    assert check_known("f", "an option", "b", OPTIONS[kind]) == "b"
