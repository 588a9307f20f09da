"""Twenty programs more: ten with two causes each, both to be told, and ten without any."""

import time

import numpy as np
from tests.unit.profile.slow_programs import (
    SlowProgram,
    arrays,
    network,
    perceptron,
    torch_of,
    training,
)

import glasshouse as gh

F = gh.nn.functional
MIXED: dict[str, SlowProgram] = {}  # each has all of its causes
SOUND: dict[str, SlowProgram] = {}
SLEEP_S = 0.01


def mixed(*causes, **options):
    def note(make):
        MIXED[make.__name__] = SlowProgram(make, causes, **options)
        return make

    return note


def sound(**options):
    def note(make):
        SOUND[make.__name__] = SlowProgram(make, (), **options)
        return make

    return note


class Slow:
    """A data set that waits for each item, as for a disk."""

    def __len__(self):
        return 6

    def __getitem__(self, i):
        time.sleep(SLEEP_S)
        return arrays(64, 64, seed=i)


class Held:
    """A data set whose items are there."""

    def __init__(self):
        self.images = arrays(6, 8, 512)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        return self.images[i]


# -- two causes ------------------------------------------------------------------------------------


@mixed("waiting for data", "Python between Programs", loader=True, warmup=0)
def waits_and_sleeps():
    model = network(64, 64, 8)

    @gh.optimize
    def step(x):
        return model(x).sum()

    def run(x):
        loss = step(x).item()
        time.sleep(SLEEP_S)
        return step(x * 2.0).item() + loss

    return gh.data.DataLoader(Slow(), batch_size=1), run


@mixed("host step", "Python between Programs")
def a_host_step_and_sleep():
    @gh.optimize
    def step(x):
        values, vectors = gh.linalg.eigh(x @ x.mT)
        return (vectors * gh.abs(values)).sum()

    x = gh.asarray(arrays(128, 64))

    def run(i):
        loss = step(x).item()
        time.sleep(SLEEP_S)
        return step(x).item() + loss

    return run


@mixed("unused gradients", "Python between Programs")
def gradients_for_nobody_and_sleep():
    model = network(256, 256, 256, 8)
    x, y = gh.asarray(arrays(320, 256)), gh.asarray(np.arange(320) % 8)

    @gh.optimize
    def step():
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    def run(i):
        loss = step().item()
        time.sleep(SLEEP_S)
        return step().item() + loss

    return run


@mixed("Python loop", "waiting for data", loader=True, warmup=0)
def rows_of_slow_data():
    w = gh.asarray(arrays(64, 64))

    def step(x):
        rows = [x[0, i] for i in range(64)]
        return sum((gh.tanh(row @ w)).sum() for row in 6 * rows).item()

    return gh.data.DataLoader(Slow(), batch_size=1), step


@mixed("copies", "casts", needs_torch=True)
def cloned_and_cast():
    import torch

    w, x = torch_of(64, 64), torch_of(4096, 64)

    def step(i):
        y = x.clone().clone()
        for _ in range(3):
            y = y.to(torch.float16).to(torch.float32)
        return (y[:64] @ w).sum().item()

    return step


@mixed("reorders", "copies", needs_torch=True)
def transposed_and_cloned():
    w, x = torch_of(64, 64), torch_of(64, 64, 128)

    def step(i):
        y = x.transpose(0, 2).contiguous()
        for _ in range(12):
            y = y.clone()
        return (y[:4] @ w).sum().item()

    return step


@mixed("copies", "gradients noted in evaluation", needs_torch=True)
def cloned_in_evaluation():
    model, x = perceptron(128, 128, 128), torch_of(2048, 128)

    def step(i):
        y = x
        for _ in range(12):
            y = y.clone()
        return model(y).argmax(1)

    return step


@mixed("float64", "copies", needs_torch=True)
def float64_and_clones():
    import torch

    w = torch.from_numpy(arrays(256, 256, dtype=np.float64))
    x = torch.from_numpy(arrays(512, 256, dtype=np.float64))

    def step(i):
        y = x
        for _ in range(12):
            y = y.clone()
        return (y @ w).sum().item()

    return step


@mixed("casts", "Python loop", needs_torch=True)
def cast_and_row_by_row():
    import torch

    w, x = torch_of(64, 64), torch_of(8192, 64)

    def step(i):
        y = x.to(torch.float16).to(torch.float32)
        return torch.stack([torch.tanh(row @ w).sum() for row in y[:64]]).sum().item()

    return step


@mixed("reorders", "Python between Programs", needs_torch=True)
def transposed_and_sleep():
    w, x = torch_of(64, 64), torch_of(64, 128, 256)

    def step(i):
        y = x.transpose(0, 2).contiguous()
        y = y.transpose(0, 1).contiguous()
        time.sleep(SLEEP_S)
        return (y[:4] @ w).sum().item()

    return step


# -- none ------------------------------------------------------------------------------------------


@sound()
def captured_products():
    w = gh.asarray(arrays(512, 512) / 512)

    @gh.optimize
    def step(x):
        for _ in range(4):
            x = gh.tanh(x @ w)
        return x.sum()

    x = gh.asarray(arrays(512, 512))
    return lambda i: step(x).item()


def trained(rows: int, sizes: tuple[int, ...], make_optimizer):
    model = network(*sizes)
    x, y = gh.asarray(arrays(rows, sizes[0])), gh.asarray(np.arange(rows) % sizes[-1])
    step = training(model, make_optimizer(model.parameters()), x, y)
    return lambda i: step().item()


@sound()
def captured_training():
    return trained(1024, (256, 512, 512, 16), lambda own: gh.optim.SGD(own, lr=0.1))


@sound()
def captured_training_with_moments():
    return trained(8192, (256, 256, 256, 16), lambda own: gh.optim.AdamW(own, lr=0.01))


@sound()
def captured_convolutions():
    convs = [gh.nn.Conv2d(a, b, 3, padding=1) for a, b in ((16, 32), (32, 32), (32, 32))]

    @gh.optimize
    def step(x):
        for conv in convs:
            x = F.relu(conv(x))
        return x.sum()

    x = gh.asarray(arrays(8, 16, 48, 48))
    return lambda i: step(x).item()


@sound()
def captured_attention():
    layer = gh.nn.MultiheadAttention(128, 4)

    @gh.optimize
    def step(x):
        with gh.no_grad():
            out = layer(x, x, x)
        return (out[0] if isinstance(out, tuple) else out).sum()

    x = gh.asarray(arrays(32, 128, 128))
    return lambda i: step(x).item()


@sound(loader=True, warmup=0)
def data_that_is_there():
    w, large = gh.asarray(arrays(512, 512) / 512), gh.asarray(arrays(512, 512))

    @gh.optimize
    def step(x):
        y = large + x[0].sum()
        for _ in range(16):
            y = gh.tanh(y @ w)
        return y.sum()

    return gh.data.DataLoader(Held(), batch_size=1), lambda x: step(x).item()


@sound()
def a_few_large_calls():
    w = gh.asarray(arrays(768, 768) / 768)
    x = gh.asarray(arrays(768, 768))
    return lambda i: ((x @ w) @ w).numpy()


@sound(needs_torch=True)
def products_of_torch():
    import torch

    w, x = torch_of(1536, 1536) / 1536, torch_of(1536, 1536)

    def step(i):
        with torch.no_grad():
            return (x @ w @ w @ w).sum().item()

    return step


@sound(needs_torch=True)
def convolutions_of_torch():
    import torch

    conv, x = torch.nn.Conv2d(64, 64, 7, padding=3), torch_of(4, 64, 64, 64)

    def step(i):
        with torch.no_grad():
            return conv(x).sum().item()

    return step


@sound(needs_torch=True)
def compiled_torch():
    import torch

    model, x = perceptron(512, 512, 512), torch_of(2048, 512)
    compiled = torch.compile(lambda: model(x).sum(), backend="glasshouse")

    def step(i):
        with torch.no_grad():
            return compiled().item()

    return step
