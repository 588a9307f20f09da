"""Training steps of small PyTorch programs, where what is around the kernels costs most.

Each program is a loss of a network; its step clips gradients and updates with Adam. It runs as
eager PyTorch does; with its loss under torch.compile, by inductor and by us; and whole under
`gh.optimize`. All in one process, one thread, in turn. The ratio is the best of PyTorch's times
over that of `gh.optimize`.
"""

import warnings

import torch
from harness import measure, parse_arguments, save_rows, show, summarize
from torch import nn
from torch.distributions import Normal, kl_divergence

import glasshouse as gh

ROUNDS, CALLS, FIRST_CALLS = 15, 20, 6


def policy(checks: bool = False):
    """PPO: a Gaussian policy and a value network on 64 observations."""

    def layers(out):
        inner = nn.Linear(24, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()
        return nn.Sequential(*inner, nn.Linear(64, out))

    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            self.actor, self.critic = layers(6), layers(1)
            self.log_std = nn.Parameter(torch.zeros(6))

    agent = Agent()
    batch = torch.randn(64, 24), torch.randn(64, 6), torch.randn(64), torch.randn(64)

    def loss(agent, observed, actions, advantages, returns):
        scale = agent.log_std.exp()
        policy = Normal(agent.actor(observed), scale, validate_args=checks)
        ratio = (policy.log_prob(actions).sum(-1) + 9.0).exp()
        clipped = ratio.clamp(0.8, 1.2)
        gain = torch.min(ratio * advantages, clipped * advantages).mean()
        error = (agent.critic(observed).squeeze(-1) - returns).square().mean()
        return 0.5 * error - gain - 0.01 * policy.entropy().sum(-1).mean()

    return agent, loss, batch


def checked_policy():
    """The same, whose distribution looks at the values that it is given, as is usual in eager."""
    return policy(checks=True)


def autoencoder():
    """A variational autoencoder of 64 digits."""

    class Coder(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 32))
            self.decoder = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 784))

    def loss(coder, x):
        mean, scale = coder.encoder(x).chunk(2, -1)
        hidden = Normal(mean, scale.exp(), validate_args=False)
        picture = coder.decoder(hidden.rsample())
        error = nn.functional.binary_cross_entropy_with_logits(picture, x, reduction="sum")
        prior = Normal(torch.zeros_like(mean), torch.ones_like(mean), validate_args=False)
        return (error + kl_divergence(hidden, prior).sum()) / len(x)

    return Coder(), loss, (torch.rand(64, 784),)


def table():
    """A classifier of 256 rows of a table, with batch norm and dropout."""
    sizes, layers = (40, 128, 128), []
    for before, behind in zip(sizes, sizes[1:]):
        layers += [nn.Linear(before, behind), nn.BatchNorm1d(behind), nn.ReLU(), nn.Dropout(0.1)]
    network = nn.Sequential(*layers, nn.Linear(sizes[-1], 5))

    def loss(network, x, y):
        return nn.functional.cross_entropy(network(x), y, label_smoothing=0.1)

    return network, loss, (torch.randn(256, 40), torch.randint(0, 5, (256,)))


def characters():
    """A transformer of two layers, 64 wide, on 16 texts of 32 characters."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(96, 64), nn.Parameter(torch.zeros(32, 64))
            layer = nn.TransformerEncoderLayer(64, 4, 256, 0.0, "gelu", batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 2)
            self.head = nn.Linear(64, 96)

    mask = nn.Transformer.generate_square_subsequent_mask(32)

    def loss(model, text):
        hidden = model.layers(model.words(text) + model.places, mask=mask, is_causal=True)
        scores = model.head(hidden)[:, :-1].flatten(0, 1)
        return nn.functional.cross_entropy(scores, text[:, 1:].flatten())

    return Model(), loss, (torch.randint(0, 96, (16, 32)),)


def digits():
    """A convolutional network on 64 pictures of 28 × 28."""
    first = nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
    second = nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
    network = nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(32 * 49, 10))

    def loss(network, x, y):
        return nn.functional.cross_entropy(network(x), y)

    return network, loss, (torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,)))


def bert():
    """A BERT of two layers, 64 wide, that fills in the masked words of 8 texts of 32 words."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = nn.Embedding(1000, 64), nn.Embedding(64, 64)
            self.kinds, self.norm = nn.Embedding(2, 64), nn.LayerNorm(64, 1e-12)
            layer = nn.TransformerEncoderLayer(64, 2, 128, 0.1, "gelu", batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.dropout, self.turn = nn.Dropout(0.1), nn.Linear(64, 64)
            self.last, self.head = nn.LayerNorm(64, 1e-12), nn.Linear(64, 1000)

        def forward(self, text, kinds, padding):
            x = self.words(text) + self.places(torch.arange(text.shape[1])) + self.kinds(kinds)
            x = self.layers(self.dropout(self.norm(x)), src_key_padding_mask=padding)
            return self.head(self.last(nn.functional.gelu(self.turn(x))))

    def loss(model, text, kinds, padding, labels):
        scores = model(text, kinds, padding)
        return nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten())

    text, labels = (torch.randint(0, 1000, (8, 32)) for _ in range(2))
    labels[torch.rand(8, 32) > 0.15] = -100
    padding = torch.zeros(8, 32, dtype=torch.bool)
    padding[:, 28:] = True
    return Model(), loss, (text, torch.zeros_like(text), padding, labels)


PROGRAMS = {
    x.__name__: x for x in (policy, checked_policy, autoencoder, table, characters, digits, bert)
}


def step_of(make, mode: str):
    """The step of a program as one mode runs it."""
    torch.manual_seed(0)
    network, loss, batch = make()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4)
    if mode in ("inductor", "glasshouse"):
        loss = torch.compile(loss, backend=mode)

    def step(*batch):
        optimizer.zero_grad()
        value = loss(network, *batch)
        value.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        return value

    run = gh.optimize(step) if mode == "gh.optimize" else step
    return lambda: run(*batch)


MODES = ("eager", "inductor", "glasshouse", "gh.optimize")


def row_of(name: str, smoke: bool) -> dict:
    """Times of a step in each mode."""
    steps = {mode: step_of(PROGRAMS[name], mode) for mode in MODES}
    for step in steps.values():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(FIRST_CALLS):
                step()
    torch.set_num_threads(1)
    rounds, calls = (1, 1) if smoke else (ROUNDS, CALLS)
    times = summarize(measure(steps, rounds, calls))
    median = {mode: times[mode]["median_s"] for mode in MODES}
    best = min(median["eager"], median["inductor"])
    return {"program": name, "times": times, "ratio": best / median["gh.optimize"]}


def main() -> None:
    options = parse_arguments(__doc__, PROGRAMS)
    if unknown := set(options.parts) - set(PROGRAMS):
        expected = ", ".join(PROGRAMS)
        raise SystemExit(f"torch_small_steps: expected {expected}; got {', '.join(unknown)}")
    torch.set_num_threads(1)
    names = options.parts or (["policy"] if options.smoke else list(PROGRAMS))
    rows = {}
    for name in names:
        rows[name] = row_of(name, options.smoke)
        path = save_rows("torch_small_steps", rows, list(PROGRAMS), options)
    show(
        "small training steps",
        ["", *MODES, "ratio"],
        [
            [
                name,
                *(f"{1e6 * row['times'][mode]['median_s']:,.0f} µs" for mode in MODES),
                f"{row['ratio']:.2f}",
            ]
            for name, row in rows.items()
        ],
        "ratio: the better of eager and inductor over gh.optimize; one thread",
    )
    print(path)


if __name__ == "__main__":
    main()
