"""Whole training iterations of PyTorch under capture: scaled gradients, errors that are caught, and
loss curves of a small GPT and a convolutional network."""

import copy
import functools

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from same_outcome import assert_same, same_outcome  # noqa: E402
from torch import nn  # noqa: E402

import glasshouse as gh  # noqa: E402
from glasshouse.base.flags import flags  # noqa: E402


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


class Trainer:
    """A model with what trains it."""

    def __init__(self, model, optimizer=sgd, schedule=None, scaler=None):
        torch.manual_seed(0)
        self.model = model()
        self.optimizer = optimizer(self.model.parameters())
        self.schedule = schedule(self.optimizer) if schedule else None
        self.scaler = scaler() if scaler else None
        self.count = 0


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))


def batches(count):
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.randn(6, 4, generator=generator), torch.randint(0, 3, (6,), generator=generator))
        for _ in range(count)
    ]


def compare(fn, make, data, compiler="eager"):
    """Run the iterations plainly and captured, and compare all after each; what captured."""
    plain, fast = make(), make()
    captured = gh.optimize(compiler)(fn)
    for batch in data:
        torch.manual_seed(3)
        want = fn(plain, *batch)
        torch.manual_seed(3)
        assert_same(captured(fast, *batch), want)
        assert_same(fast.model, plain.model, "model")
        assert_same(fast.optimizer, plain.optimizer, "optimizer")
    return captured


# -- GradScaler, accumulation, clipping, schedules -------------------------------------------------


def scaled(trainer, x, y):
    trainer.optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(trainer.model(x), y) * 16
    trainer.scaler.scale(loss).backward()
    trainer.scaler.unscale_(trainer.optimizer)
    norm = nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
    trainer.scaler.step(trainer.optimizer)
    trainer.scaler.update()
    return loss, norm, trainer.scaler.get_scale()


SCALERS = {
    "scales": lambda: torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=2),
    "overflows at first": lambda: torch.amp.GradScaler("cpu", init_scale=2.0**127),
    "overflows once": lambda: torch.amp.GradScaler("cpu", init_scale=2.0**123, growth_interval=4),
    "is off": lambda: torch.amp.GradScaler("cpu", enabled=False),
}


@pytest.mark.parametrize("name", SCALERS)
def test_a_scaler(name):
    def make():
        return Trainer(net, scaler=SCALERS[name])

    captured = compare(scaled, make, batches(8))
    assert not captured.capture.breaks


def test_a_scaler_that_overflows_again_and_again():
    def make():
        return Trainer(net, scaler=lambda: torch.amp.GradScaler("cpu", 2.0**127, growth_interval=1))

    captured = compare(scaled, make, batches(16))
    assert {why for _, why, _ in captured.capture.breaks} == {
        "a branch on a number that a tensor holds"
    }


def accumulated(trainer, x, y):
    """Every third call makes a step."""
    loss = F.cross_entropy(trainer.model(x), y) / 3
    loss.backward()
    trainer.count += 1
    if trainer.count % 3 == 0:
        nn.utils.clip_grad_norm_(trainer.model.parameters(), 0.5)
        trainer.optimizer.step()
        trainer.optimizer.zero_grad()
    return loss


def test_gradients_are_accumulated_over_calls():
    compare(accumulated, lambda: Trainer(net), batches(9))


def clipped_by_value(trainer, x, y):
    trainer.optimizer.zero_grad()
    loss = F.cross_entropy(trainer.model(x), y)
    loss.backward()
    nn.utils.clip_grad_value_(trainer.model.parameters(), 0.01)
    trainer.optimizer.step()
    return loss


def clipped_by_another_norm(trainer, x, y):
    trainer.optimizer.zero_grad()
    loss = F.cross_entropy(trainer.model(x), y)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(trainer.model.parameters(), 0.1, norm_type=float("inf"))
    trainer.optimizer.step()
    return loss, norm


def by_closure(trainer, x, y):
    def closure():
        trainer.optimizer.zero_grad()
        loss = F.cross_entropy(trainer.model(x), y)
        loss.backward()
        return loss

    return trainer.optimizer.step(closure)


def parts_of_the_model(trainer, x, y):
    for p in trainer.model[0].parameters():
        p.requires_grad = False
    trainer.optimizer.zero_grad()
    loss = F.cross_entropy(trainer.model(x), y)
    loss.backward()
    trainer.optimizer.step()
    return loss


def plateau(trainer, x, y):
    trainer.optimizer.zero_grad()
    loss = F.cross_entropy(trainer.model(x), y)
    loss.backward()
    trainer.optimizer.step()
    trainer.schedule.step(loss.detach())
    return loss


@pytest.mark.parametrize("fn", [clipped_by_value, clipped_by_another_norm, by_closure])
def test_iterations(fn):
    compare(fn, lambda: Trainer(net), batches(4))


def test_frozen_parts():
    compare(parts_of_the_model, lambda: Trainer(net), batches(4))


def test_a_schedule_by_the_loss():
    schedule = functools.partial(torch.optim.lr_scheduler.ReduceLROnPlateau, patience=0)
    compare(plateau, lambda: Trainer(net, schedule=schedule), batches(6))


WARM = {
    "sequence": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o,
        [
            torch.optim.lr_scheduler.LinearLR(o, 0.1, total_iters=2),
            torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
        ],
        milestones=[2],
    ),
    "restarts": lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 2),
    "multi-step": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [2, 4]),
}


def scheduled(trainer, x, y):
    trainer.optimizer.zero_grad()
    loss = F.cross_entropy(trainer.model(x), y)
    loss.backward()
    trainer.optimizer.step()
    trainer.schedule.step()
    return loss, trainer.schedule.get_last_lr()


@pytest.mark.parametrize("name", WARM)
def test_schedules(name):
    compare(scheduled, lambda: Trainer(net, schedule=WARM[name]), batches(6))


# -- errors that are caught ------------------------------------------------------------------------


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.last = nn.Embedding(5, 4), nn.Linear(4, 3)

    def forward(self, i):
        return self.last(F.dropout(self.words(i), 0.5))


def in_try(trainer, i, y):
    trainer.optimizer.zero_grad()
    try:
        loss = F.cross_entropy(trainer.model(i), y)
    finally:
        trainer.count += 1
    loss.backward()
    trainer.optimizer.step()
    return loss


def test_a_step_with_a_model_inside_try_is_one_graph():
    torch.manual_seed(5)
    data = [(torch.randint(0, 5, (6,)), torch.randint(0, 3, (6,))) for _ in range(5)]
    captured = compare(in_try, lambda: Trainer(Words), data)
    assert captured.hits == 3 and not captured.capture.breaks


def test_what_a_graph_did_before_it_raised_is_taken_back():
    right, y = torch.tensor([0, 4, 2]), torch.tensor([0, 1, 2])
    wrong = torch.tensor([0, 99, 2])
    captured = gh.optimize("eager")(in_try)
    plain, fast = Trainer(Words), Trainer(Words)
    for i in (right, right, right, wrong, right):
        outcomes = []
        for run, trainer in ((in_try, plain), (captured, fast)):
            torch.manual_seed(3)
            try:
                outcomes.append(run(trainer, i, y))
            except IndexError as error:
                outcomes.append(str(error))
            outcomes[-1] = outcomes[-1], torch.rand(1), trainer.count
        assert_same(*outcomes)
        assert_same(fast.model, plain.model, "model")
        assert_same(fast.optimizer, plain.optimizer, "optimizer")


def caught(x, i):
    y = F.dropout(x, 0.5)
    try:
        z = F.embedding(i, y)
    except IndexError:
        z = F.dropout(x, 0.25)
    return z + torch.rand(1)


def test_numbers_are_drawn_again_where_a_graph_raised():
    x, right, wrong = torch.randn(3, 4), torch.tensor([0, 2]), torch.tensor([0, 7])
    captured = same_outcome(caught, (x, right), (x, right), (x, wrong), (x, right))
    assert captured.hits


# -- loss curves -----------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads, self.all, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        count, length, width = x.shape
        parts = self.all(x).view(count, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(count, length, width))


class Block(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.one, self.two, self.attention = nn.LayerNorm(width), nn.LayerNorm(width), Attention()
        self.mlp = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))

    def forward(self, x):
        x = x + self.attention(self.one(x))
        return x + self.mlp(self.two(x))


class GPT(nn.Module):
    def __init__(self, words=17, width=16, length=8):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, i):
        x = self.words(i) + self.places(torch.arange(i.shape[1], device=i.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def convolutional():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


def words_step(trainer, i):
    trainer.optimizer.zero_grad()
    logits = trainer.model(i[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), i[:, 1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
    trainer.optimizer.step()
    trainer.schedule.step()
    return loss.detach()


def images_step(trainer, x, y):
    trainer.optimizer.zero_grad()
    loss = F.cross_entropy(trainer.model(x), y)
    loss.backward()
    trainer.optimizer.step()
    return loss.detach()


def warmed(optimizer):
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 10))


def words_data():
    generator = torch.Generator().manual_seed(2)
    text = torch.randint(0, 17, (40,), generator=generator).repeat(3)
    starts = torch.randint(0, 100, (50, 4), generator=generator)
    return [(torch.stack([text[s : s + 9] for s in row]),) for row in starts.tolist()]


def images_data():
    generator = torch.Generator().manual_seed(2)
    data = []
    for _ in range(50):
        y = torch.randint(0, 3, (6,), generator=generator)
        x = torch.randn(6, 1, 8, 8, generator=generator) * 0.3
        data.append((x + y.view(-1, 1, 1, 1).float() - 1, y))
    return data


CURVES = {
    "gpt": (words_step, lambda: Trainer(GPT, adamw, warmed), words_data),
    "convolutional": (images_step, lambda: Trainer(convolutional), images_data),
}


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["eager", "program"])
@pytest.mark.parametrize("name", CURVES)
def test_loss_curves(name, compiler):
    step, make, data = CURVES[name]
    plain, fast = make(), make()
    captured = gh.optimize(compiler)(step)
    want = [step(plain, *batch).item() for batch in data()]
    with flags.override(compile="never"):  # Programs on the references, which take no time to make
        got = [captured(fast, *batch).item() for batch in data()]
    assert want[-1] < want[0] * 0.95
    torch.testing.assert_close(got, want, rtol=2e-3, atol=2e-3)
    assert captured.hits >= 47 and not captured.capture.breaks
    goes_on = copy.deepcopy(plain)
    goes_on.model.load_state_dict(fast.model.state_dict())
    goes_on.optimizer.load_state_dict(fast.optimizer.state_dict())
    batch = data()[0]
    torch.testing.assert_close(step(goes_on, *batch), step(plain, *batch), rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float32), (torch.float32, torch.float64)])
def test_numbers_of_an_update_are_given_in_the_dtype_of_its_tensors(dtypes):
    """So that the graph does not convert them one by one; with tensors of two dtypes it has to."""
    graphs = []

    def compiler(graph: torch.fx.GraphModule, example_inputs):
        graphs.append(graph)
        return graph.forward

    def trained(wrap):
        torch.manual_seed(0)
        parameters = [torch.randn(3, 4, dtype=dtype, requires_grad=True) for dtype in dtypes]
        optimizer = torch.optim.AdamW(parameters, lr=0.1)

        def step(rate):
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            sum(p.double().square().sum() for p in parameters).backward()
            optimizer.step()

        call = wrap(step)
        for i in range(5):
            call(0.1 / (i + 1))
        return parameters

    result = trained(gh.optimize(compiler))
    torch.testing.assert_close(result, trained(lambda step: step), rtol=1e-6, atol=0)
    converts = [x for graph in graphs for x in graph.graph.nodes if x.target == "to"]
    assert bool(converts) == (len({*dtypes}) == 2)
