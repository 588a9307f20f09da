import pytest

from glasshouse.base import OptionError
from glasshouse.ops.collective_bytes import SMALL_BYTES, part
from glasshouse.ops.exchange import EXCHANGES, TRANSPORTS, sent_bytes


def test_parts_hold_each_element_once():
    for count in (0, 1, 5, 8, 1001):
        for size in (1, 2, 3, 7):
            parts = [part(count, size, rank) for rank in range(size)]
            assert [i for begin, end in parts for i in range(begin, end)] == list(range(count))


def test_all_ranks_send_twice_what_others_need_of_an_all_reduce():
    for count in (1000, 1001, 1003):
        for size in (2, 3, 4):
            sent = [sent_bytes("all_reduce", 4 * count, size, r, itemsize=4) for r in range(size)]
            assert sum(sent) == 2 * (size - 1) * 4 * count


def test_a_small_all_reduce_goes_whole_to_all():
    assert sent_bytes("all_reduce", SMALL_BYTES, 4, itemsize=4) == 3 * SMALL_BYTES
    assert sent_bytes("all_reduce", SMALL_BYTES + 4, 4, itemsize=4) < 3 * SMALL_BYTES


def test_only_the_root_sends_a_broadcast():
    assert [sent_bytes("broadcast", 10, 3, rank, root=1) for rank in range(3)] == [0, 20, 0]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_one_rank_sends_nothing(transport):
    assert not any(sent_bytes(name, 100, 1, transport=transport) for name in EXCHANGES)


def test_unknown_names_are_refused():
    with pytest.raises(OptionError, match="all_reduce"):
        sent_bytes("all_reduced", 4, 2)
    with pytest.raises(OptionError, match="transport"):
        sent_bytes("all_reduce", 4, 2, transport="wire")
