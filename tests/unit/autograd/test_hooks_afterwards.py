import pytest

import glasshouse as gh
from glasshouse.autograd.tape import AT_END
from glasshouse.base.errors import GradError
from glasshouse.tensor.handle import add_hook


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


def test_leaves_are_told_of_as_soon_as_their_last_use_was_pulled():
    order = []
    first, second, hidden, y = chain()

    def end():
        order.append("end")

    for name, x in (("first", first), ("second", second)):
        x.register_post_accumulate_grad_hook(lambda _, name=name: order.append(name))
        add_hook(x, AT_END, end)
    hidden.register_hook(lambda _: order.append("hidden"))
    y.backward()
    assert order == ["second", "hidden", "first", "end"]


def test_leaves_of_one_call_are_told_of_in_one_order():
    """Ranks make collectives of them."""
    for _ in range(20):
        order, junk = [], [object() for _ in range(7)]
        leaves = [gh.tensor([float(i)], requires_grad=True) for i in range(6)]
        for i, x in enumerate(leaves):
            x.register_post_accumulate_grad_hook(lambda _, i=i, order=order: order.append(i))
        gh.concat(leaves[::2] + leaves[1::2]).sum().backward()
        assert order == [5, 4, 3, 2, 1, 0]
        assert len(junk) == 7


def test_a_tensor_used_twice_is_told_of_once_and_numbers_stay():
    order = []
    x = gh.tensor([2.0], requires_grad=True)
    x.register_post_accumulate_grad_hook(lambda tensor: order.append(tensor.grad.tolist()))
    number = x.tape_entry.seq
    (x * x * 3 + x).backward()
    assert order == [[13.0]]
    assert x.tape_entry.seq == number


def test_the_end_is_told_of_where_a_leaf_was_reached():
    first, second, hidden, _ = chain()
    order = []
    add_hook(second, AT_END, lambda: order.append("end"))
    hidden.sum().backward()
    assert order == []
    (second * 2).backward()
    assert order == ["end"]
    assert first.grad is not None
