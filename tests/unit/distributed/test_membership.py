import numpy as np
import pytest

from glasshouse import distributed as dist
from glasshouse.base.errors import CollectiveError, OptionError
from glasshouse.base.flags import flags, mpi_place
from glasshouse.distributed.groups import membership
from glasshouse.distributed.groups.membership import place_of
from glasshouse.distributed.groups.store import FolderStore
from glasshouse.distributed.transports.collectives import WrappedCollectives
from glasshouse.distributed.transports.shared_files import SharedFiles
from glasshouse.ops.process import process


@pytest.fixture
def mpi(monkeypatch):
    """Sets what MPI says."""
    return lambda place: monkeypatch.setattr(membership, "mpi_place", lambda: place)


@pytest.fixture
def world_of_one(tmp_path):
    """Joins a world of this process alone."""
    yield lambda *args, **named: dist.init(
        *args, **{"rank": 0, "size": 1, "rendezvous": str(tmp_path), **named}
    )
    dist.shutdown()


def test_without_a_launcher_both_ways_are_told(mpi):
    mpi(None)
    with pytest.raises(CollectiveError, match=r"glasshouse launch -n 2.*mpiexec -n 2 python"):
        dist.init()


def test_under_mpiexec_the_transport_is_mpi(mpi):
    mpi((1, 4))
    assert place_of(None, None, None, None) == ("mpi", 1, 4, "")


def test_the_launchers_flags_come_before_mpis(mpi):
    mpi((1, 4))
    with flags.override(rank=0, world_size=2, rendezvous="folder"):
        assert place_of(None, None, None, None) == (membership.DEFAULT, 0, 2, "folder")


def test_what_is_given_comes_first(mpi):
    mpi(None)
    with flags.override(rank=0, world_size=2, rendezvous="folder", transport="mpi"):
        assert place_of("shared_files", 2, 3, "x") == ("shared_files", 2, 3, "x")
        assert place_of(None, None, None, None)[0] == "mpi"


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"PMI_RANK": "2", "PMI_SIZE": "3"}, (2, 3)),
        ({"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}, (0, 2)),
        ({"PMI_RANK": "2"}, None),
        ({}, None),
    ],
)
def test_both_mpis_environments_are_known(environ, place):
    assert mpi_place(environ) == place


def test_an_unknown_transport_suggests_the_nearest(world_of_one):
    with pytest.raises(OptionError, match="Did you mean 'shared_files'"):
        world_of_one("shared_file")


def test_a_second_init_is_refused(world_of_one):
    world_of_one()
    with pytest.raises(CollectiveError, match="without a world"):
        world_of_one()


def fails(*args):
    raise RuntimeError("no")


def test_nothing_is_half_joined_where_the_transport_fails(world_of_one, monkeypatch):
    monkeypatch.setitem(membership.transports, "fails", fails)
    with pytest.raises(RuntimeError):
        world_of_one("fails", rank=0, size=1)
    assert not dist.is_initialized() and dist.size() == 1


class Elsewhere(FolderStore):
    """The store of a rank that shares no folder with the others."""

    def find_folder(self, timeout_s):
        return ""


def test_a_transport_of_one_machine_is_refused_on_several(world_of_one, monkeypatch):
    monkeypatch.setattr(membership, "open_store", Elsewhere)
    with pytest.raises(CollectiveError, match=r"one machine for the transport shared_files; got"):
        world_of_one("shared_files")


class Own(SharedFiles):
    """A user's transport."""


def test_a_registered_transport_is_used(world_of_one, monkeypatch):
    monkeypatch.setattr(membership, "transports", dict(membership.transports))
    dist.register_transport("own", Own)
    world = world_of_one("own", timeout_s=3)
    assert type(process.transport(world)) is Own
    assert process.transport(world).timeout_s == 3


class Doubled(WrappedCollectives):
    """Sums are twice what they are."""

    def all_reduce(self, source, out, reduce="sum"):
        super().all_reduce(source, out, reduce)
        out *= 2


def reduced_by_a_users_class():
    """The world's transport with a class around it, for the length of the call."""
    world, results = dist.world(), {}
    plain = process.transport(world)
    wrapped = Doubled(plain)
    x = np.full(3, 1.0 + world.rank, np.float32)
    for name, transport in (("world", wrapped), ("group", wrapped.subgroup(world))):
        out = np.empty_like(x)
        transport.start("all_reduce", x, out).wait()
        results[name] = out.tolist()
    gathered = np.empty((2, 3), np.float32)
    wrapped.all_gather(x, gathered)
    results["gathered"], results["sent"] = gathered.tolist(), wrapped.sent_bytes == plain.sent_bytes
    return results


def test_a_class_around_a_transport_changes_what_it_defines_alone(ranks):
    for result in ranks(reduced_by_a_users_class):
        assert result["world"] == result["group"] == [6.0] * 3
        assert result["gathered"] == [[1.0] * 3, [2.0] * 3]
        assert result["sent"]


def test_init_puts_the_class_around_the_transport(world_of_one):
    world = world_of_one(wrap=Doubled)
    assert type(process.transport(world)) is Doubled
