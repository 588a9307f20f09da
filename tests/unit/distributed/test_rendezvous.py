import threading
import time

import pytest

from glasshouse.base.errors import CollectiveError
from glasshouse.distributed.groups.rendezvous import check_alike, identity, join
from glasshouse.distributed.groups.store import FolderStore, TCPStore, serve


@pytest.fixture(params=["folder", "tcp"])
def store(request, tmp_path):
    if request.param == "folder":
        yield FolderStore(str(tmp_path))
        return
    with serve("127.0.0.1", 0) as server:
        yield TCPStore(f"tcp://127.0.0.1:{server.server_address[1]}")


def in_threads(*functions) -> list:
    """Run all functions at a time; return the result or error of each."""
    result = [None] * len(functions)

    def run(number):
        try:
            result[number] = functions[number]()
        except CollectiveError as error:
            result[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return result


def test_a_value_is_written_once(store):
    assert store.set("a/b c", b"\x00first")
    assert not store.set("a/b c", b"second")
    assert store.get("a/b c", 0) == b"\x00first"


def test_one_of_many_writers_at_a_time_wins(store):
    won = in_threads(*(lambda i=i: store.set("key", b"%d" % i) for i in range(8)))
    assert won.count(True) == 1
    assert store.get("key", 0) == b"%d" % won.index(True)


def test_get_waits_for_a_value(store):
    def write():
        time.sleep(0.05)
        return store.set("late", b"x")

    assert in_threads(lambda: store.get("late", 10), write) == [b"x", True]


def test_get_gives_none_where_no_value_comes(store):
    assert store.get("never", 0.01) is None


def test_a_store_leaves_only_its_keys(tmp_path):
    store = FolderStore(str(tmp_path))
    store.set("a", b"1")
    store.set("a", b"2")
    assert [path.name for path in tmp_path.iterdir()] == ["key-a"]


def test_a_folder_on_another_machine_is_none(tmp_path):
    with serve("127.0.0.1", 0) as server:
        store = TCPStore(f"tcp://127.0.0.1:{server.server_address[1]}")
        assert store.find_folder(0) == ""
        store.set("folder", str(tmp_path).encode())
        assert store.find_folder(0) == str(tmp_path)


def test_a_store_that_nobody_serves_is_named(monkeypatch):
    monkeypatch.setattr("glasshouse.distributed.groups.store.CONNECT_S", 0.1)
    with pytest.raises(CollectiveError, match=r"a store at tcp://127.0.0.1:9; got .*refused"):
        TCPStore("tcp://127.0.0.1:9").get("key", 0)


def test_ranks_that_are_alike_join(store):
    alike = identity(transport="local")
    assert in_threads(*(lambda i=i: join(store, i, 3, 10, alike) for i in range(3))) == [None] * 3


def test_ranks_that_do_not_come_are_named(store):
    with pytest.raises(CollectiveError, match=r"all 4 ranks within 0.05 s; got no .* \[1, 3"):
        in_threads(lambda: store.set("rank 2", b"{}"))
        join(store, 0, 4, 0.05, identity())


def test_two_processes_with_one_rank_are_refused(store):
    other = b'{"process": 1, "host": "elsewhere", "alike": {}}'
    store.set("rank 0", other)
    with pytest.raises(CollectiveError, match="one process with rank 0.*process 1 on elsewhere"):
        join(store, 0, 1, 1, identity())


def test_other_versions_are_refused_on_every_rank_by_name(store):
    result = in_threads(
        lambda: join(store, 0, 2, 10, identity()),
        lambda: join(store, 1, 2, 10, identity() | {"numpy": "1.0"}),
    )
    for error in result:
        assert "the same numpy on all ranks; got" in str(error)
        assert "1.0 on rank 1" in str(error)


def test_ranks_that_are_alike_are_not_refused():
    check_alike([identity(), identity()])
