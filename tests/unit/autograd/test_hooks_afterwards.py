import pytest

import glasshouse as gh
from glasshouse.autograd.backward import call_at_end, ends
from glasshouse.base.errors import GradError


def chain():
    first, second = (gh.tensor([float(v)], requires_grad=True) for v in (2, 3))
    hidden = first * 5
    return first, second, hidden, hidden * second


def test_a_hook_for_afterwards_sees_what_was_added_up():
    (x, _, _, y), values = chain(), []
    x.grad = gh.tensor([1.0])
    x.register_post_accumulate_grad_hook(lambda tensor: values.append(tensor.grad.tolist()))
    y.backward()
    assert values == [[16.0]]


def test_it_is_refused_for_what_collects_no_gradient():
    with pytest.raises(GradError, match="a leaf"):
        chain()[2].register_post_accumulate_grad_hook(print)


def test_its_handle_ends_it():
    (x, _, _, y), values = chain(), []
    x.register_post_accumulate_grad_hook(values.append).remove()
    y.backward()
    assert values == []


class Ended:
    def __init__(self, order):
        self.order = order
        call_at_end(self.end)

    def end(self):
        self.order.append("end")


def test_leaves_are_told_of_as_soon_as_their_last_use_was_pulled():
    order = []
    ended = Ended(order)
    first, second, hidden, y = chain()
    for name, x in (("first", first), ("second", second)):
        x.register_post_accumulate_grad_hook(lambda _, name=name: order.append(name))
    hidden.register_hook(lambda _: order.append("hidden"))
    y.backward()
    assert order == ["second", "hidden", "first", "end"]
    assert ended.order is order


def test_a_tensor_used_twice_is_told_of_once_and_numbers_stay():
    ended, order = Ended([]), []
    x = gh.tensor([2.0], requires_grad=True)
    x.register_post_accumulate_grad_hook(lambda tensor: order.append(tensor.grad.tolist()))
    number = x.tape_entry.seq
    (x * x * 3 + x).backward()
    assert order == [[13.0]]
    assert x.tape_entry.seq == number
    assert ended.order == ["end"]


def test_what_is_called_at_the_end_is_forgotten_with_its_object():
    before = len([end for end in ends if end() is not None])
    Ended([])
    call_at_end((kept := Ended([])).end)
    assert len(ends) == before + 2
    assert kept.order == []
