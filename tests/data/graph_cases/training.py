"""Gradients, optimizers, random numbers, capture's own functions."""

import random

import xp

from . import built, built_of, case, ints, leaf, t

nn, optim = xp.nn, xp.optim


@case(leaf(3))
def backward_of_a_leaf(x):
    y = x.detach().requires_grad_()
    (y * y).sum().backward()
    return y.grad * 2


@built(t(2, 4))
def forward_that_trains():
    model = nn.Linear(4, 2)
    return lambda x: model(x).sum()


@built(t(2, 4))
def backward_inside():
    model = nn.Linear(4, 2)

    def fn(x):
        loss = model(x).sum()
        loss.backward()
        return loss

    return fn


@built(t(2, 4))
def zero_grad_and_backward():
    model = nn.Linear(4, 2)

    def fn(x):
        model.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        return loss

    return fn


def training_with(make):
    """A training step with an optimizer."""

    def build():
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        optimizer = make(model.parameters())

        def fn(x, y):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return fn

    return build


def sgd(parameters):
    return optim.SGD(parameters, lr=0.1)


def sgd_with_momentum(parameters):
    return optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters):
    return optim.Adam(parameters, lr=0.1)


def adamw(parameters):
    return optim.AdamW(parameters, lr=0.1)


def rmsprop(parameters):
    return optim.RMSprop(parameters, lr=0.1)


def adagrad(parameters):
    return optim.Adagrad(parameters, lr=0.1)


for make in (sgd, sgd_with_momentum, adam, adamw, rmsprop, adagrad):
    step = training_with(make)
    step.__name__, step.__module__ = f"trains_with_{make.__name__}", __name__
    built(t(2, 4), ints(2))(step)


@built(t(2, 4))
def gradient_is_clipped():
    model = nn.Linear(4, 2)

    def fn(x):
        model.zero_grad()
        loss = model(x).sum()
        loss.backward()
        total = sum((p.grad**2).sum() for p in model.parameters())
        return total**0.5

    return fn


@built(t(2, 4))
def weights_are_updated_by_hand():
    model = nn.Linear(4, 2)

    def fn(x):
        model.zero_grad()
        loss = model(x).sum()
        loss.backward()
        with xp.no_grad():
            for p in model.parameters():
                p.sub_(p.grad * 0.1)
        return loss

    return fn


@built(t(2, 4))
def a_schedule():
    model = nn.Linear(4, 2)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def fn(x):
        for group in optimizer.param_groups:
            group["lr"] = 0.05
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    return fn


@case(leaf(3))
def keeps_a_gradient(x):
    return (x * x).sum()


@case(leaf(3))
def detaches_in_the_middle(x):
    return (x * x.detach()).sum()


@case(leaf(3))
def no_grad_inside_a_gradient(x):
    with xp.no_grad():
        scale = x.sum()
    return (x * scale).sum()


@case(leaf(3))
def asks_for_gradients(x):
    return x * 2 if x.requires_grad else x * 3


# -- random numbers --------------------------------------------------------------------------------


@case(t(3))
def random_tensor(x):
    return x + xp.randn((3,)) * 0 + xp.rand((3,)) * 0


@case(t(3))
def seeded_random_tensor(x):
    xp.seed(3)
    return x + xp.rand((3,)) * 0


@case(t(3))
def seed_between(x):
    y = x + 1
    xp.seed(3)
    return y + xp.rand((3,)) * 0


@case(t(3))
def random_numbers_of_python(x):
    return x + random.random() * 0 + 1


@case(t(3))
def random_integers_of_python(x):
    return x + random.randint(2, 2)


@case(t(3))
def random_choice_by_python(x):
    if random.randrange(1, 2) == 1:
        return x + 1
    return x - 1


@case(t(3))
def random_number_across_a_break(x):
    a = random.uniform(1.0, 1.0)
    x = x + a
    xp.graph_break()
    return x * a


@built(t(3))
def own_generator_of_random_numbers():
    rng = random.Random(3)

    def fn(x):
        return x + rng.randint(1, 1)

    return fn


@built(t(2, 4))
def dropout_while_training():
    layer = nn.Dropout(0.5)
    return lambda x: layer(x) * 0 + x


# -- capture's own functions -----------------------------------------------------------------------


def node_of_its_own(x):
    return x * 2


xp.allow_in_graph(node_of_its_own)


@xp.assume_constant_result
def constant_table():
    return 3


@case(t(3))
def allowed_in_the_graph(x):
    return node_of_its_own(x + 1) + 1


@case(t(3))
def constant_result(x):
    return x * constant_table()


@case(t(3))
def disabled_and_enabled(x):
    return xp.disable(node_of_its_own)(x + 1) + 1


@built_of((t(3),), (t(3),), (t(4),), (t(4),))
def two_functions_with_one_code():
    def maker(by):
        def inner(x):
            return x * by

        return inner

    twice, thrice = maker(2), maker(3)
    return lambda x: twice(x) + thrice(x)


@case(3)
def no_tensor_at_all(n):
    return n + 1


@case([1, 2, 3])
def numbers_in_a_list(xs):
    return sum(xs)


@case({"a": 1})
def numbers_in_a_dict(d):
    return d["a"] + 1


@case(3)
def makes_its_tensors(n):
    return xp.ones(n) + xp.zeros(n)


@case("name", t(3))
def text_argument(name, x):
    return {"name": x * 2, "other": x}[name]


@case(t(3), [1, [2, (3, None)]])
def nested_numbers(x, tree):
    return x * tree[1][0] + tree[1][1][0]


@case(t(3))
def returns_its_argument(x):
    return x


@case(t(3))
def returns_constants(x):
    return 3, "abc", None, True


@case(t(3))
def returns_one_tensor_twice(x):
    y = x + 1
    return y, y


@case(t(3))
def returns_a_view(x):
    return x.reshape((3, 1))


@case(t(3))
def result_is_not_used(x):
    x + 1
    return 3
