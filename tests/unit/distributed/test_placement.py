import numpy as np
import pytest

import glasshouse as gh
from glasshouse import distributed as dist
from glasshouse.base.errors import OptionError, ShapeError
from glasshouse.distributed import Partial, Replicate, Shard, Sharding

WHOLE = np.arange(6 * 4, dtype=np.float32).reshape(6, 4)
CASES = [
    {"data": Shard(0)},
    {"data": Shard(-1)},
    {"data": Shard(0, parts=3)},
    {"data": Replicate()},
]


def placed(placements):
    x = dist.place(WHOLE, dist.mesh({"data": 2}), placements)
    boxes = [(WHOLE[piece.whole], x.numpy()[piece.local]) for piece in x.sharding.pieces()]
    return x.numpy(), dist.gather(x).numpy(), boxes


@pytest.mark.parametrize("placements", CASES, ids=str)
def test_what_was_placed_is_gathered_again(ranks, placements):
    for _, whole, boxes in ranks(placed, placements):
        np.testing.assert_array_equal(whole, WHOLE)
        for outside, inside in boxes:
            np.testing.assert_array_equal(inside, outside)


def test_each_rank_has_its_rows(ranks):
    for rank, (own, _, _) in enumerate(ranks(placed, {"data": Shard(0)})):
        np.testing.assert_array_equal(own, WHOLE[3 * rank : 3 * rank + 3])


def twice():
    mesh = dist.mesh({"data": 2, "tensor": 2})
    x = dist.place(WHOLE, mesh, {"tensor": Shard(0, 3), "data": Shard(1)})
    return x.sharding.local_shape(), dist.gather(x).numpy()


def test_two_axes_of_a_mesh_cut_one_after_the_other(ranks):
    for shape, whole in ranks(twice, size=4):
        assert shape == (3, 2)
        np.testing.assert_array_equal(whole, WHOLE)


def uneven():
    mesh = dist.mesh({"data": 2})
    sharding = Sharding((5, 2), {"data": Shard(0)}, mesh)
    (piece,) = sharding.pieces()
    own = gh.asarray(WHOLE[:5, :2][piece.whole])
    return own.shape, dist.gather(own, sharding).numpy()


def test_rows_that_ranks_do_not_divide_are_gathered_too(ranks):
    result = ranks(uneven)
    assert [shape for shape, _ in result] == [(3, 2), (2, 2)]
    for _, whole in result:
        np.testing.assert_array_equal(whole, WHOLE[:5, :2])


def refusals():
    mesh, messages = dist.mesh({"data": 2}), []
    for x, placement in (
        (np.ones((3, 2)), Shard(0)),
        (np.ones((2, 2)), Shard(2)),
        (np.ones(()), Shard(0)),
    ):
        with pytest.raises(ShapeError, match="2 ranks along 'data' divide") as error:
            dist.place(x, mesh, {"data": placement})
        messages.append(str(error.value))
    with pytest.raises(OptionError, match="parts or wholes"):
        dist.place(np.ones(2), mesh, {"data": Partial()})
    return messages


def test_what_ranks_do_not_divide_is_refused(ranks):
    for messages in ranks(refusals):
        assert "shape (3, 2)" in messages[0]


def test_a_tensor_that_nobody_placed_is_whole():
    sharding = dist.sharding_of(gh.ones((2, 3)))
    assert sharding.is_whole
    assert sharding.shape == (2, 3)
