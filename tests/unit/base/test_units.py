"""Numbers of bytes with units."""

import pytest

from glasshouse.base.units import ByteCount, format_bytes


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


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1.2.3MB", "5 potatoes", "60%"])
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
