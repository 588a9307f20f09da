"""Profiles of machines: what their rates say of times."""

from dataclasses import replace

import pytest

from glasshouse.analyze import MachineProfile


def test_new_pages_take_time_at_their_own_rate():
    machine = replace(MachineProfile.load("cpu2"), new_bytes_per_s=4e9)
    assert machine.new_pages_ns(1 << 20) == pytest.approx((1 << 20) / 4)
    assert replace(machine, new_bytes_per_s=0.0).new_pages_ns(1 << 20) == 0
