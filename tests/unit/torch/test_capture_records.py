"""Captured code does not rely on what it only writes to: records that grow from call to call."""

from collections import OrderedDict, deque

import pytest

torch = pytest.importorskip("torch")

from same_outcome import same_story  # noqa: E402
from torch import nn  # noqa: E402

import glasshouse as gh  # noqa: E402

X = torch.linspace(-1, 1, 4)
CALLS = 12


def numbered(number):
    return X + number, number


def growing_list():
    history = []

    def fn(x, n):
        history.append((x * 2).sum())

    return fn, numbered, lambda: history


def list_of_numbers():
    losses = [0.5]

    def fn(x, n):
        losses.append((x * 2).sum().item())
        losses.append((n, "n"))

    return fn, numbered, lambda: losses


def list_that_is_extended():
    history = []

    def fn(x, n):
        nonlocal history
        history += [x * 2, x * 3]
        history.extend((x, n))

    return fn, numbered, lambda: history


def dict_of_last_values():
    last = {"lr": 0.1}

    def fn(x, n):
        last["loss"] = (x * 2).sum()
        last["lr"] = n

    return fn, numbered, lambda: last


def dict_by_step():
    steps = OrderedDict()

    def fn(x, n):
        steps[n] = (x * 2).sum()
        steps[n + 100] = x
        steps["last"] = n

    return fn, numbered, lambda: steps


def growing_deque():
    recent = deque(maxlen=5)

    def fn(x, n):
        recent.append((x * 2).sum())
        recent.appendleft(n)

    return fn, numbered, lambda: list(recent)


def attributes_that_grow():
    class Meter:
        def __init__(self):
            self.values, self.count, self.total, self.by_name = [], 0, 0.0, {}

        def add(self, name, value):
            self.values.append(value)
            self.by_name[name] = value
            self.count += 1
            self.total += value.item()

    meter = Meter()

    def fn(x, n):
        meter.add("loss", (x * 2).sum())

    return fn, numbered, lambda: vars(meter)


def training_with_a_record():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses, by_step = [], {}

    def fn(x, n):
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        by_step[n] = loss.detach()
        return loss

    return fn, numbered, lambda: (losses, by_step, model.state_dict())


RECORDS = [
    growing_list, list_of_numbers, list_that_is_extended, dict_of_last_values, dict_by_step,
    growing_deque, attributes_that_grow, training_with_a_record,
]  # fmt: skip


@pytest.mark.parametrize("make", RECORDS, ids=lambda make: make.__name__)
def test_a_record_that_grows_needs_no_new_capture(make):
    captured = same_story(make, calls=CALLS)
    assert captured.hits >= CALLS - 3, captured.capture.recompiles
    assert not captured.capture.breaks


def reads_what_it_appended():
    history = [1]

    def fn(x, n):
        history.append(n)
        before = len(history)
        history.append(x)
        return x * before, history[-1], history[-2], sum(h for h in history if type(h) is int)

    return fn, lambda i: (X, i % 3), lambda: history


def reads_behind_a_key_that_varies():
    table = {}

    def fn(x, n):
        table[n] = x * n
        table["n"] = n
        del table[n]
        table[n + 1] = x
        return list(table), table["n"], len(table)

    return fn, numbered, lambda: table


def a_write_leaves_the_key():
    table = {1: "one", 2: "two"}

    def fn(x, n):
        table[True] = x * 2
        keys = [type(key) for key in table]
        del table[1]
        table[True] = n
        return keys, [type(key) for key in table]

    return fn, numbered, lambda: table


def order_of_what_is_written():
    table = {"a": 1, "b": 2}

    def fn(x, n):
        table["c"] = n
        table["a"] = n
        keys = list(table)
        table.pop("c")
        return x, keys, table.get("b"), "c" in table

    return fn, numbered, lambda: table


def pops_behind_appending():
    history = []

    def fn(x, n):
        history.append(x + n)
        if len(history) > 2:
            history.pop(0)
        return history[0]

    return fn, numbered, lambda: history


def two_names_of_one_list():
    history = []
    other = {"history": history}

    def fn(x, n):
        history.append(x)
        other["history"].append(n)
        return len(history)

    return fn, numbered, lambda: history


def breaks_behind_appending():
    history, recent = [], deque()

    def fn(x, n):
        history.append(iter([x, n]))
        recent.append((n, zip([1], [2])))
        gh.graph_break()
        history.append(n)
        return [next(history[0], None), len(history), list(recent[-1][1])]

    return fn, numbered, lambda: len(history)


READ = [
    reads_what_it_appended, reads_behind_a_key_that_varies, a_write_leaves_the_key,
    order_of_what_is_written, pops_behind_appending, two_names_of_one_list,
    breaks_behind_appending,
]  # fmt: skip


@pytest.mark.parametrize("make", READ, ids=lambda make: make.__name__)
def test_what_is_read_behind_a_write_is_relied_on(make):
    same_story(make, calls=7)
