import numpy as np
import pytest

import glasshouse as gh
from glasshouse import distributed as dist


def gathered():
    own = {"rank": dist.rank(), "text": "ü" * 1000 * dist.rank(), "shape": (dist.rank(),)}
    return dist.all_gather_object(own)


def test_every_rank_has_the_objects_of_all(ranks):
    expected = [{"rank": r, "text": "ü" * 1000 * r, "shape": (r,)} for r in range(2)]
    assert ranks(gathered) == [expected] * 2


def given():
    return dist.broadcast_object(["settings", dist.rank()] if dist.rank() == 1 else None, 1)


def test_the_root_gives_its_object_to_all(ranks):
    assert ranks(given) == [["settings", 1]] * 2


def after_what_is_recorded():
    total = dist.all_reduce(gh.ones(3))  # recorded on both ranks, needed early on one
    early = total.numpy() if dist.rank() else None
    names = dist.all_gather_object(f"rank {dist.rank()}")
    return names, total.numpy() if early is None else early


def test_objects_come_after_the_collectives_that_were_recorded_before(ranks):
    for names, total in ranks(after_what_is_recorded):
        assert names == ["rank 0", "rank 1"]
        np.testing.assert_array_equal(total, [2, 2, 2])


def test_alone_one_has_an_equal_object_of_ones_own():
    x = [1, [2]]
    (gathered,), copy = dist.all_gather_object(x), dist.broadcast_object(x)
    assert gathered == copy == x
    assert gathered is not x and copy is not x


def test_what_cannot_be_pickled_is_refused():
    with pytest.raises(Exception, match=r"pickle|local object"):
        dist.all_gather_object(lambda: 0)
