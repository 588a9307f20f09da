import pytest

from glasshouse import distributed as dist
from glasshouse.base.errors import OptionError


def grid():
    mesh = dist.mesh({"data": 2, "tensor": 2})
    names = [("data",), ("tensor",), ("data", "tensor")]
    return mesh.coordinates(), [mesh.group(*name).ranks for name in names]


def test_groups_lie_along_the_axes(ranks):
    result = ranks(grid, size=4)
    assert [place for place, _ in result] == [
        {"data": i, "tensor": j} for i in range(2) for j in range(2)
    ]
    assert [groups for _, groups in result] == [
        [(0, 2), (0, 1), (0, 1, 2, 3)],
        [(1, 3), (0, 1), (0, 1, 2, 3)],
        [(0, 2), (2, 3), (0, 1, 2, 3)],
        [(1, 3), (2, 3), (0, 1, 2, 3)],
    ]


@pytest.mark.parametrize("axes", [{"data": 3}, {"data": 0}, {}, {"data": 1.0}])
def test_a_mesh_that_does_not_fit_the_world_is_refused(axes):
    with pytest.raises(OptionError, match="the number of ranks, 1"):
        dist.mesh(axes)


def test_an_unknown_axis_is_refused_with_the_nearest():
    with pytest.raises(OptionError, match="Did you mean 'tensor'"):
        dist.mesh({"data": 1, "tensor": 1}).group("tenser")
