"""The number of threads, and what bounds it: a container's quota, OMP_NUM_THREADS, a flag."""

import os

import pytest

from glasshouse.base import processes
from glasshouse.base.flags import flags

V2, V1 = "0::/a/b\n", "5:cpuset:/a\n4:cpu,cpuacct:/a/b\n0::/\n"


@pytest.mark.parametrize(
    "groups, files, quota",
    [
        (V2, {"a/b/cpu.max": "150000 100000\n"}, 1.5),
        (V2, {"a/b/cpu.max": "max 100000\n"}, None),
        (V2, {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "50000 100000\n"}, 0.5),
        (V2, {"a/b/cpu.max": "400000 100000\n", "a/cpu.max": "200000 100000\n"}, 2.0),
        (V2, {"cpu.max": "300000 100000\n"}, 3.0),  # a container sees its group as the root
        (V2, {"unified/a/b/cpu.max": "100000 50000\n"}, 2.0),
        (V2, {"a/b/cpu.max": "nonsense\n"}, None),
        (V2, {"a/b/cpu.max": "0 0\n"}, None),
        (V2, {"a/b/cpu.max": ""}, None),
        (V2, {}, None),
        ("garbage\n", {}, None),
        (
            V1,
            {
                "cpu,cpuacct/a/b/cpu.cfs_quota_us": "250000\n",
                "cpu,cpuacct/a/b/cpu.cfs_period_us": "100000\n",
            },
            2.5,
        ),
        (
            V1,
            {"cpu/cpu.cfs_quota_us": "20000\n", "cpu/cpu.cfs_period_us": "10000\n"},
            2.0,
        ),
        (V1, {"cpu/a/cpu.cfs_quota_us": "-1\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, None),
        (V1, {"cpu/a/cpu.cfs_quota_us": "100000\n"}, None),
    ],
)
def test_quotas_of_control_groups(tmp_path, groups, files, quota):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert processes.cpu_quota(tmp_path) == quota


def test_no_control_groups_are_no_quota(tmp_path):
    assert processes.cpu_quota(tmp_path) is None


@pytest.mark.parametrize(
    "affinity, quota, bound",
    [
        (8, None, (8, "cores")),
        (8, 16.0, (8, "cores")),
        (6, None, (6, "affinity")),
        (6, 6.0, (6, "affinity")),
        (6, 2.5, (3, "quota")),
        (8, 0.2, (1, "quota")),
    ],
)
def test_the_least_of_cores_affinity_and_quota_bounds_the_threads(
    monkeypatch, affinity, quota, bound
):
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(affinity)))
    monkeypatch.setattr(processes, "cpu_quota", lambda: quota)
    assert processes.bound_of_cores() == bound
    assert processes.count_cores() == bound[0]
    assert processes.thread_bound({}) == bound


@pytest.mark.parametrize("text, count", [("3", 3), (" 3 ", 3), ("3,2", 3), ("4096", 4096)])
def test_users_say_how_many_threads(text, count):
    bound = processes.thread_bound({"OMP_NUM_THREADS": text})
    assert bound == (count, "OMP_NUM_THREADS")
    with flags.override(threads=2):
        assert processes.thread_bound({"OMP_NUM_THREADS": text}) == (2, "GH_THREADS")


@pytest.mark.parametrize("text", ["", "0", "-2", "many", "2.5"])
def test_a_number_of_threads_that_is_none_does_not_count(text):
    assert processes.thread_bound({"OMP_NUM_THREADS": text}) == processes.bound_of_cores()
