"""Numbers of bytes with units."""

import pytest

from glasshouse.base.errors import OptionError
from glasshouse.base.flags import Flags
from glasshouse.base.units import ByteCount, format_bytes, parse_budget, parse_bytes

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("4096B", 4096),
        ("1.5GiB", 3 << 29),
        ("800MB", 800_000_000),
        ("800 mb", 800_000_000),
        ("2KiB", 2048),
        ("1TB", 10**12),
    ],
)
def test_sizes_are_read_with_their_units(text, nbytes):
    assert ByteCount(text) == nbytes


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1.2.3MB", "5 potatoes", "60%", "1.5", "4G"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError):
        ByteCount(text)


@pytest.mark.parametrize("nbytes", [0, 1, 999, 2048, 200_000_000, 256 << 20, 3 << 29])
def test_a_size_that_is_shown_exactly_is_read_back(nbytes):
    assert ByteCount(format_bytes(nbytes)) == nbytes


def test_other_sizes_are_shown_to_three_digits():
    assert [format_bytes(n) for n in (1_234_567, 12_345, 2_345_678_901)] == [
        "1.23MB",
        "12.3KB",
        "2.35GB",
    ]


@pytest.mark.parametrize(
    ("value", "nbytes", "words"),
    [
        (4096, 4096, "4,096 bytes"),
        ("1600000000", 1_600_000_000, "1,600,000,000 bytes"),
        ("1.5GiB", 3 << 29, "1.5GiB"),
        (" 800 MB ", 800_000_000, "800 MB"),
        ("60%", 600, "60%"),
        ("12.5 %", 125, "12.5 %"),
        (0.6, 600, "0.6"),
        ("0.6", 600, "0.6"),
        (1.0, 1000, "1.0"),
    ],
)
def test_budgets_are_bytes_or_parts_and_print_as_they_were_written(value, nbytes, words):
    budget = parse_budget("here", value)
    assert budget.bytes_of(1000) == nbytes and str(budget) == words
    assert parse_budget("there", budget) is budget


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        (1.5, 'Write "1.5GiB"'),
        ("4.0", 'Write "4.0GiB"'),
        (4e9, "Write 4000000000 for bytes"),
        ("120%", '"50%" for half'),
        (0.0, '"50%" for half'),
        (-0.1, '"50%" for half'),
        ("4G", "4GiB (powers of 1024) or 4GB (of 1000)"),
        (0, "with a unit"),
        (-5, "with a unit"),
        (True, "with a unit"),
        (None, "with a unit"),
        ("half", "1.5GiB or 800MB"),
    ],
)
def test_what_could_mean_two_things_is_refused_with_what_to_write(value, fix):
    with pytest.raises(OptionError, match="here: expected") as caught:
        parse_budget("here", value)
    assert fix in str(caught.value) and repr(value) in str(caught.value)


@pytest.mark.parametrize("value", [0.5, "60%", "1.5", 0, -1, True, None])
def test_where_there_is_no_whole_a_part_is_refused(value):
    with pytest.raises(OptionError, match="here: expected a number of bytes"):
        parse_bytes("here", value)


def test_flags_take_units():
    assert Flags({"GH_MEMORY_LIMIT": "8GiB"}).memory_limit == 8 << 30
    with pytest.raises(OptionError, match=r"GH_MEMORY_LIMIT: .*such as 1.5GiB"):
        Flags({"GH_MEMORY_LIMIT": "8G"})
