"""Fifty steps of training lie on eager's: digits, a small GPT, SGD, AdamW, bfloat16, breaks."""

import pytest

torch = pytest.importorskip("torch")
datasets = pytest.importorskip("sklearn.datasets")
nn, functional = torch.nn, torch.nn.functional

pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore:.*isinstance.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    # TorchDynamo looks at .grad of what comes out of an earlier graph
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),
]
STEPS = 50


class Digits(nn.Module):
    """A small convolutional network; where it breaks, the graph has to be cut."""

    def __init__(self, breaks: bool = False):
        super().__init__()
        self.breaks = breaks
        self.first = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.last = nn.Linear(8 * 16, 10)

    def forward(self, x):
        h = functional.relu(self.norm(self.first(x)))
        if self.breaks and h.sum().item() < 0:
            h = -h
        return self.last(functional.max_pool2d(h, 2).flatten(1))


class Block(nn.Module):
    """Attention and a perceptron, each after a norm."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, length, width = x.shape
        parts = self.qkv(self.before(x)).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, length, width))
        return x + self.narrow(functional.gelu(self.wide(self.between(x))))


class Gpt(nn.Module):
    """Two blocks; the embedding is also the head."""

    def __init__(self, words: int = 17, width: int = 32):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(12, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(2))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.words.weight.T


def batches_of_digits():
    images, labels = datasets.load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    labels = torch.tensor(labels)
    return [(images[i : i + 32], labels[i : i + 32]) for i in range(0, 32 * STEPS, 32)]


def batches_of_tokens():
    """A walk through 17 words whose next word follows from the last two."""
    walk = [1, 2]
    for _ in range(8 * 13 * STEPS):
        walk.append((3 * walk[-1] + walk[-2] + 1) % 17)
    rows = torch.tensor(walk[: 8 * 13 * STEPS]).reshape(STEPS, 8, 13)
    return [(row[:, :-1], row[:, 1:]) for row in rows]


def losses_of(make_model, batches, optimizer: str, wrap, narrow: bool) -> list[float]:
    torch.manual_seed(4)
    model = make_model()
    if optimizer == "SGD":
        updates = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    else:
        updates = torch.optim.AdamW(model.parameters(), lr=0.003)
    call, losses = wrap(model), []
    for x, y in batches:
        updates.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
            logits = call(x)
            loss = functional.cross_entropy(logits.flatten(0, -2).float(), y.flatten())
        loss.backward()
        updates.step()
        losses.append(loss.item())
    return losses


CASES = {
    "digits, SGD": (Digits, batches_of_digits, "SGD", False),
    "digits, AdamW, breaks": (lambda: Digits(True), batches_of_digits, "AdamW", False),
    "GPT, AdamW": (Gpt, batches_of_tokens, "AdamW", False),
    "GPT, SGD, bfloat16": (Gpt, batches_of_tokens, "SGD", True),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", list(CASES))
def test_the_loss_curves_lie_on_each_other(case):
    from glasshouse.torch.backend.entry_point import glasshouse

    def wrap(model):
        return torch.compile(model, backend=glasshouse, options={"strict": True})

    make_model, make_batches, optimizer, narrow = CASES[case]
    batches = make_batches()
    ours = losses_of(make_model, batches, optimizer, wrap, narrow)
    theirs = losses_of(make_model, batches, optimizer, lambda model: model, narrow)
    assert ours == pytest.approx(theirs, rel=0.01)
    assert theirs[-1] < 0.8 * theirs[0]
