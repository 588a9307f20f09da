"""Twenty slow programs, one fault each, small ones: what the first advice has to name."""

import contextlib
from typing import NamedTuple

import numpy as np

import glasshouse as gh
from glasshouse.base.flags import flags

F = gh.nn.functional


class SlowProgram(NamedTuple):
    """`make()` gives a function of the number of the step; `causes` are right names of it."""

    make: object
    causes: tuple[str, ...]
    warmup: int = 3
    steps: int = 5
    needs_torch: bool = False
    loader: bool = False  # `make()` gives (batches, function of a batch) in place of a function


PROGRAMS: dict[str, SlowProgram] = {}


# Each has the least fault that a user would make; sizes are such that it outweighs all else.
def slow(*causes, **options):
    def note(make):
        PROGRAMS[make.__name__] = SlowProgram(make, causes, **options)
        return make

    return note


def arrays(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def training(model, optimizer, x, y):
    @gh.optimize
    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def network(*sizes):
    layers = [gh.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)]
    return gh.nn.Sequential(*(m for layer in layers for m in (layer, gh.nn.ReLU())))


# -- ours ------------------------------------------------------------------------------------------


@slow("small batches")
def batches_of_one():
    model = network(1024, 1024, 1024)
    optimizer = gh.optim.SGD(model.parameters(), lr=0.1)
    step = training(model, optimizer, gh.asarray(arrays(1, 1024)), gh.asarray([1]))
    return lambda i: step().item()


@slow("graph break", "reading results")
def item_inside_each_step():
    w = gh.asarray(arrays(32, 32))

    @gh.optimize
    def step(x):
        for _ in range(6):
            x = gh.tanh(x @ w)
            if x.sum().item() > 1e9:
                x = x * 0.5
        return x

    x = gh.asarray(arrays(4, 32))
    return lambda i: step(x).numpy()


@slow("recompilation", warmup=0, steps=8)
def a_new_length_each_step():
    model = network(16, 32, 8)

    @gh.optimize
    def step(x):
        return model(x).sum()

    return lambda i: step(gh.asarray(arrays(5 + i, 16))).item()


@slow("host step")
def a_step_on_the_host():
    w = gh.asarray(arrays(64, 64))

    @gh.optimize
    def step(x):
        y = gh.tanh(x @ w)
        values, vectors = gh.linalg.eigh(y @ y.mT)
        return (vectors * gh.abs(values)).sum()

    x = gh.asarray(arrays(160, 64))
    return lambda i: step(x).item()


@slow("float64")
def float64_by_accident():
    model, scale = network(256, 256, 256), arrays(256, 256, dtype=np.float64)

    @gh.optimize
    def step(x, scale):
        return (gh.tanh(model(x) * scale) @ scale).sum()

    x = gh.asarray(arrays(256, 256))
    return lambda i: step(x, gh.asarray(scale)).item()


@slow("Python loop")
def rows_one_by_one():
    w = gh.asarray(arrays(32, 32))
    x = [gh.asarray(row) for row in arrays(64, 32)]

    def step(i):
        return sum((gh.tanh(row @ w)).sum() for row in x).item()

    return step


@slow("waiting for data", loader=True, warmup=0)
def a_slow_data_set():
    model = network(64, 64, 8)

    class Images:
        def __len__(self):
            return 24

        def __getitem__(self, i):
            return np.linalg.svd(arrays(64, 64, seed=i))[0][0]

    @gh.optimize
    def step(x):
        return model(x).sum()

    return gh.data.DataLoader(Images(), batch_size=4), lambda x: step(x).item()


@slow("Python between Programs")
def data_made_in_the_loop():
    model = network(64, 64, 8)

    @gh.optimize
    def step(x):
        return model(x).sum()

    def run(i):
        rows = [np.sort(arrays(64, 64, seed=i + k).ravel())[:64] for k in range(16)]
        return step(gh.asarray(np.stack(rows))).item()

    return run


@slow("no capture")
def an_ordinary_loop():
    model = network(32, 32, 32, 32, 32, 8)
    optimizer = gh.optim.AdamW(model.parameters(), lr=0.1)
    x, y = gh.asarray(arrays(8, 32)), gh.asarray(np.arange(8))

    def step(i):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


@slow("odd channel counts")
def thirty_one_channels():
    convs = [gh.nn.Conv2d(a, b, 3, padding=1) for a, b in ((3, 31), (31, 31), (31, 31))]

    @gh.optimize
    def step(x):
        for conv in convs:
            x = F.relu(conv(x))
        return x.sum()

    x = gh.asarray(arrays(2, 3, 48, 48))
    return lambda i: step(x).item()


@slow("small kernels")
def many_small_products():
    w = gh.asarray(arrays(8, 8) / 3)

    @gh.optimize
    def step(x):
        for _ in range(200):
            x = gh.tanh(x @ w)
        return x

    x = gh.asarray(arrays(8, 8))
    return lambda i: step(x).numpy()


@slow("memory near its limit")
def memory_at_its_limit():
    model = network(64, 512, 512, 512, 8)
    optimizer = gh.optim.SGD(model.parameters(), lr=0.1)
    x, y = gh.asarray(arrays(512, 64)), gh.asarray(np.arange(512) % 8)
    step = training(model, optimizer, x, y)
    for _ in range(3):
        step().item()
    with gh.profile(profile_memory=True) as p:
        step().item()
    memory = gh.memory.limit(int(1.05 * p.memory().peak_bytes))
    held.enter_context(memory)
    return lambda i: step().item()


@slow("unused gradients")
def gradients_for_nobody():
    model = network(256, 256, 256, 8)
    x, y = gh.asarray(arrays(320, 256)), gh.asarray(np.arange(320) % 8)

    @gh.optimize
    def step():
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    return lambda i: step().item()


# -- PyTorch's -------------------------------------------------------------------------------------


def perceptron(*sizes):
    import torch

    layers = [torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)]
    return torch.nn.Sequential(*(m for layer in layers for m in (layer, torch.nn.ReLU())))


def torch_of(*shape):
    import torch

    return torch.from_numpy(arrays(*shape))


@slow("gradients noted in evaluation", needs_torch=True)
def evaluation_with_gradients():
    model, x = perceptron(512, 512, 512, 512), torch_of(1024, 512)
    return lambda i: model(x).argmax(1)


@slow("reorders", needs_torch=True)
def transposed_each_step():
    w, x = torch_of(64, 64), torch_of(64, 128, 128)

    def step(i):
        y = x.transpose(0, 2).contiguous()
        y = y.transpose(0, 1).contiguous()
        return (y[:4] @ w).sum().item()

    return step


@slow("copies", needs_torch=True)
def cloned_each_step():
    w, x = torch_of(64, 64), torch_of(4096, 64)

    def step(i):
        state = x.clone()
        kept = [state.clone() for _ in range(4)]
        return (kept[-1][:64] @ w).sum().item()

    return step


@slow("casts", needs_torch=True)
def half_and_back():
    import torch

    w, x = torch_of(64, 64), torch_of(4096, 64)

    def step(i):
        y = x
        for _ in range(3):
            y = y.to(torch.float16).to(torch.float32)
        return (y[:64] @ w).sum().item()

    return step


@slow("float64", needs_torch=True)
def torch_of_numpy_numbers():
    import torch

    w = torch.from_numpy(arrays(512, 512, dtype=np.float64))
    x = torch.from_numpy(arrays(512, 512, dtype=np.float64))
    return lambda i: torch.tanh(x @ w).sum().item()


@slow("Python loop", needs_torch=True)
def torch_rows_one_by_one():
    import torch

    w, x = torch_of(32, 32), torch_of(64, 32)

    def step(i):
        out = []
        for row in x:
            out.append(torch.tanh(row @ w).sum())
        return torch.stack(out).sum().item()

    return step


@slow("unfused operators", needs_torch=True)
def a_chain_of_elements():
    import torch

    x = torch_of(1024, 1024)

    def step(i):
        y = x * 2.0
        y = y + 1.0
        y = torch.abs(y)
        y = y - 0.5
        y = y * y
        return torch.relu(y)

    return step


@slow("host step", needs_torch=True)
def an_operator_of_my_own():
    import torch

    name = "glasshouse_slow_programs::scaled_rows"

    @torch.library.custom_op(name, mutates_args=())
    def scaled_rows(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([row / (row.abs().sum() + 1) for row in x])

    scaled_rows.register_fake(torch.empty_like)
    w = torch_of(64, 64)

    @torch.compile(backend="glasshouse")
    def step(x):
        return torch.tanh(scaled_rows(x @ w)).sum()

    x = torch_of(256, 64)

    def run(i):
        with torch.no_grad():
            return step(x).item()

    return run


@slow("waiting for data", needs_torch=True, loader=True, warmup=0)
def torch_slow_data_set():
    import torch

    class Images(torch.utils.data.Dataset):
        def __len__(self):
            return 24

        def __getitem__(self, i):
            return np.linalg.svd(arrays(64, 64, seed=i))[0][0]

    model = perceptron(64, 64, 8)
    loader = torch.utils.data.DataLoader(Images(), batch_size=4)

    def step(x):
        with torch.no_grad():
            return model(x).sum().item()

    return loader, step


held = contextlib.ExitStack()


def profiled(program: SlowProgram):
    """A profile of a program's steps, after some that are not recorded."""
    gh.random.seed(0)
    options = {"with_stack": True, "profile_memory": True}
    with flags.override(compile="always"), held:
        if program.loader:
            batches, step = program.make()
            for batch, _ in zip(batches, range(3), strict=False):
                step(batch)
            with gh.profile(**options) as prof:
                for batch in batches:
                    step(batch)
                    prof.step()
            return prof
        step = program.make()
        for i in range(program.warmup):
            step(i)
        if program.needs_torch:  # what kinds of calls cost is worked out before
            with gh.profile():
                step(program.warmup)
        with gh.profile(**options) as prof:
            for i in range(program.steps):
                step(program.warmup + i)
                prof.step()
    return prof
