"""Hooks on tensors, parameters, nodes of autograd, modules and optimizers: captured or a break with
a reason, and what they do and see is what it is in eager."""

import pytest

torch = pytest.importorskip("torch")

from same_outcome import nothing, same_story  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.modules import module as of_modules  # noqa: E402

import glasshouse as gh  # noqa: E402

X = torch.linspace(-1, 1, 12).reshape(3, 4)
OF_TENSORS = "tensors that have hooks"
FROM_OUTSIDE = "computed outside of the graph"


def leaf(number):
    return (X + number * 0.1).clone().requires_grad_()


def plain(number):
    return (X + number,)


def leaves(number):
    return (leaf(number),)


def stepping(model):
    """A function that makes gradients of a model, and tells how long a log is then."""

    def fn(x, log):
        model.zero_grad()
        model(x).sum().backward()
        return len(log), [p.grad.clone() for p in model.parameters()]

    return fn


# -- of tensors ------------------------------------------------------------------------------------


def hook_writes_what_is_read_behind():
    model, log = nn.Linear(4, 4), []
    model.weight.register_hook(lambda g: log.append(float(g.sum())))
    return stepping(model), lambda i: (X + i, log), nothing


def hook_reads_what_was_written_before():
    model, log, state = nn.Linear(4, 4), [], {"phase": "none"}
    model.weight.register_hook(lambda g: log.append(state["phase"]))

    def fn(x):
        state["phase"] = "forward"
        loss = model(x).sum()
        state["phase"] = "backward"
        loss.backward()
        state["phase"] = "end"
        return loss

    return fn, plain, lambda: log


def hook_changes_the_gradient():
    model = nn.Linear(4, 4)
    model.weight.register_hook(lambda g: g * 2)
    return stepping(model), lambda i: (X + i, []), nothing


def hook_comes():
    model, log = nn.Linear(4, 4), []

    def arguments(i):
        if i == 3:
            model.weight.register_hook(lambda g: log.append(i) or g * 2)
        return X + i, log

    return stepping(model), arguments, nothing


def hook_goes():
    model, log = nn.Linear(4, 4), []
    handle = model.weight.register_hook(lambda g: log.append(1) or g * 2)

    def arguments(i):
        if i == 3:
            handle.remove()
        return X + i, log

    return stepping(model), arguments, nothing


def optimizer_in_a_hook():
    return optimizers_in_hooks(lambda p: torch.optim.SGD([p], lr=0.01, momentum=0.9))


def adam_in_a_hook():
    return optimizers_in_hooks(lambda p: torch.optim.Adam([p], lr=0.01))


def optimizers_in_hooks(make):
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizers = {p: make(p) for p in model.parameters()}

    def update(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(update)

    def fn(x):
        loss = model(x).sum()
        loss.backward()
        return loss, [p.grad for p in model.parameters()], model(x).sum()

    return fn, plain, model.state_dict


def gradient_of_each(model):
    def fn(x):
        loss = model(x).sum()
        loss.backward()
        return loss, [None if p.grad is None else p.grad.clone() for p in model.parameters()]

    return fn


def drop(parameter):
    parameter.grad = None


def late_hook_comes():
    model = nn.Linear(4, 1)

    def arguments(i):
        if i == 3:
            for p in model.parameters():
                p.register_post_accumulate_grad_hook(drop)
        return plain(i)

    return gradient_of_each(model), arguments, nothing


def late_hook_goes():
    model = nn.Linear(4, 1)
    handles = [p.register_post_accumulate_grad_hook(drop) for p in model.parameters()]

    def arguments(i):
        if i == 3:
            for handle in handles:
                handle.remove()
        return plain(i)

    return gradient_of_each(model), arguments, nothing


def retained_gradient():
    def fn(x):
        y = x * 2
        y.retain_grad()
        (y**2).sum().backward()
        return y.grad.clone(), x.grad

    return fn, leaves, nothing


def hook_is_registered_inside():
    log = []

    def fn(x):
        y = x * 2
        y.register_hook(lambda g: log.append(g.sum().item()) or g * 3)
        y.sum().backward()
        return x.grad.clone(), len(log)

    return fn, leaves, lambda: log


def hook_is_registered_in_a_module():
    log = []

    class Logged(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            y = self.layer(x)
            if y.requires_grad:
                y.register_hook(lambda g: log.append(float(g.sum())))
            return y * 2

    model = Logged()

    def fn(x):
        loss = model(x).sum()
        loss.backward()
        return loss

    return fn, plain, lambda: log


def argument_with_a_hook():
    log = []

    def arguments(i):
        y = leaf(i) * 2
        y.register_hook(lambda g: log.append(i))
        return y, log

    def fn(y, log):
        (y * 3).sum().backward()
        return len(log)

    return fn, arguments, nothing


def node_with_a_hook():
    log = []

    def arguments(i):
        y = leaf(i) * 2
        y.grad_fn.register_hook(lambda inputs, results: log.append(i))
        return y, log

    def fn(y, log):
        (y * 3).sum().backward()
        return len(log)

    return fn, arguments, nothing


def accumulation_with_a_hook():
    log, counts, p = [], {"n": 0}, nn.Parameter(torch.ones(3))
    node = p.view_as(p).grad_fn.next_functions[0][0]
    node.register_hook(lambda *args: log.append(1))
    node.register_hook(lambda *args: counts.update(n=counts["n"] + 1))

    def fn(x):
        log.append(7)
        counts["n"] += 10
        before = len(log)
        (p * x).sum().backward()
        log.append(8)
        counts["n"] += 100
        return before, len(log), node is not None, counts["n"], list(log)

    return fn, lambda i: (torch.ones(3) * i,), lambda: (log, counts)


def hook_of_several():
    log = []

    def fn(x):
        a, b = x * 2, x * 3
        torch.autograd.graph.register_multi_grad_hook((a, b), lambda gs: log.append(len(gs)))
        (a + b).sum().backward()
        return len(log)

    return fn, leaves, lambda: log


def hook_of_a_node_inside():
    log = []

    def fn(x):
        a = x * 2
        a.grad_fn.register_prehook(lambda g: log.append(1))
        a.sum().backward()
        return len(log)

    return fn, leaves, lambda: log


OF_GRADIENTS = {
    hook_writes_what_is_read_behind: OF_TENSORS, hook_reads_what_was_written_before: OF_TENSORS,
    hook_changes_the_gradient: OF_TENSORS, hook_comes: OF_TENSORS, hook_goes: OF_TENSORS,
    optimizer_in_a_hook: OF_TENSORS, adam_in_a_hook: OF_TENSORS,
    late_hook_comes: OF_TENSORS, late_hook_goes: OF_TENSORS,
    retained_gradient: "retain_grad", hook_is_registered_inside: "register_hook",
    hook_is_registered_in_a_module: "register_hook", argument_with_a_hook: FROM_OUTSIDE,
    node_with_a_hook: FROM_OUTSIDE, accumulation_with_a_hook: "ran in a backward pass",
    hook_of_several: "register_multi_grad_hook", hook_of_a_node_inside: "grad_fn",
}  # fmt: skip


@pytest.mark.parametrize("make", OF_GRADIENTS, ids=lambda make: make.__name__)
def test_hooks_of_gradients(make):
    same_story(make, reason=OF_GRADIENTS[make])


def test_a_hook_that_comes_is_told():
    model = nn.Linear(4, 1)
    captured = gh.optimize("eager")(gradient_of_each(model))
    for _ in range(4):
        captured(X)
    assert captured.hits >= 2
    assert not captured.capture.breaks
    handle = model.weight.register_hook(lambda g: g)
    captured(X)
    assert any(OF_TENSORS in reason for _, reason, _ in captured.capture.breaks)
    assert any("no hooks" in guard for _, guard, _, _ in captured.capture.recompiles)
    handle.remove()
    hits = captured.hits
    captured(X)
    assert captured.hits == hits + 1


# -- of modules and optimizers ---------------------------------------------------------------------


def pair():
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))


def backward_hook_of_a_module():
    model, log = pair(), []
    model[0].register_full_backward_hook(lambda m, gi, go: log.append(float(go[0].sum())))
    return stepping(model), lambda i: (leaf(i), log), nothing


def backward_hook_of_a_module_comes():
    model, log = pair(), []

    def arguments(i):
        if i == 3:
            model[0].register_full_backward_pre_hook(lambda m, go: log.append(1) or (go[0] * 2,))
        return leaf(i), log

    return stepping(model), arguments, nothing


def forward_hooks():
    model, log, handles = pair(), [], []
    model[0].register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    model[0].register_forward_hook(
        lambda m, args, named, out: log.append(tuple(out.shape)) or out + 1, with_kwargs=True
    )
    model[1].register_forward_hook(lambda m, args, out: log.append("always"), always_call=True)

    def arguments(i):
        if i == 2:
            handles.append(model[1].register_forward_hook(lambda m, args, out: out * 3))
        if i == 4:
            handles[0].remove()
        return plain(i)

    return lambda x: (model(x), len(log)), arguments, lambda: log


def hooks_of_all_modules():
    model, handles = nn.Linear(4, 4), []

    def arguments(i):
        if i == 2:
            double = lambda m, args, out: out * 2  # noqa: E731
            handles.append(of_modules.register_module_forward_hook(double))
        if i == 4:
            handles.pop().remove()
        return plain(i)

    return lambda x: model(x), arguments, nothing


def hook_that_is_always_called():
    log = []

    class Fails(nn.Module):
        def forward(self, x, fails):
            if fails:
                raise ValueError("it does")
            return x * 2

    model = Fails()
    model.register_forward_hook(lambda m, args, out: log.append("called"), always_call=True)
    return lambda x, fails: model(x, fails), lambda i: (X, i in (2, 4)), lambda: log


def hooks_of_optimizers():
    model, log = nn.Linear(4, 1), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer.register_step_pre_hook(lambda o, args, named: log.append("before"))
    optimizer.register_step_post_hook(lambda o, args, named: log.append("behind"))

    def arguments(i):
        if i == 3:
            optimizer.register_step_post_hook(lambda o, args, named: log.append("late"))
        return plain(i)

    def fn(x):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
        return len(log)

    return fn, arguments, lambda: (log, model.state_dict())


OF_OBJECTS = [
    backward_hook_of_a_module, backward_hook_of_a_module_comes, forward_hooks,
    hooks_of_all_modules, hook_that_is_always_called, hooks_of_optimizers,
]  # fmt: skip


@pytest.mark.parametrize("make", OF_OBJECTS, ids=lambda make: make.__name__)
def test_hooks_of_modules_and_optimizers(make):
    same_story(make)


# -- of what is saved ------------------------------------------------------------------------------


def hooks_of_saved_tensors():
    log = []

    def noted(word):
        return lambda t: log.append(word) or t

    def fn(x):
        with torch.autograd.graph.saved_tensors_hooks(noted("saved"), noted("read")):
            y = (x * x).sin()
        before = len(log)
        y.sum().backward()
        return before, len(log), x.grad.clone()

    return fn, leaves, lambda: log


def saved_on_the_processor():
    def fn(x):
        with torch.autograd.graph.save_on_cpu():
            y = (x * x).sin()
        y.sum().backward()
        return x.grad.clone()

    return fn, leaves, nothing


@pytest.mark.parametrize("make", [hooks_of_saved_tensors, saved_on_the_processor])
def test_hooks_of_what_is_saved(make):
    same_story(make, reason="saved_tensors_hooks")


def test_nothing_is_captured_where_saved_tensors_have_hooks():
    captured, log = gh.optimize("eager")(lambda x: (x * x).sum()), []
    captured(leaf(0))
    for _ in range(2):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: log.append(1) or t, lambda t: t):
            captured(leaf(0)).backward()
    captured(leaf(0))
    assert len(log) == 4
    assert (len(captured.capture.entries), captured.hits) == (1, 1)
