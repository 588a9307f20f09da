"""Lowered graphs from the disk: nothing is lowered again, and all is as it was."""

import copy

import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.programs import program

torch = pytest.importorskip("torch")
nn = torch.nn

from glasshouse.torch.aten.table import TABLE, TableEntry  # noqa: E402
from glasshouse.torch.backend import graph_cache, runtime  # noqa: E402
from glasshouse.torch.lowering import interpreter as lowering  # noqa: E402
from glasshouse.torch.lowering import lowering_cache  # noqa: E402

if runtime.__dict__.get("key_of_lowering") is None:
    pytest.skip("this PyTorch keeps no graphs of other backends", allow_module_level=True)

pytestmark = pytest.mark.library_warnings


@pytest.fixture(autouse=True)
def own_cache(tmp_path):
    """A folder of compiled code of its own, and no Program in memory."""
    program.programs.clear()
    with flags.override(cache=str(tmp_path / "compiled"), verify=False):
        yield tmp_path / "compiled"
    program.programs.clear()


class Words(nn.Module):
    """More than a hundred calls: rows of a table, then layers with norms and dropout."""

    def __init__(self, layers: int = 12):
        super().__init__()
        self.rows = nn.Embedding(10, 8)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(0.25))
            for _ in range(layers)
        )

    def forward(self, words):
        x = self.rows(words)
        for layer in self.layers:
            x = x + layer(x)
        return x


def anew(model):
    """The model compiled as in a new process."""
    torch._dynamo.reset()
    program.programs.clear()
    return torch.compile(model, backend="glasshouse")


def step_of(model, words) -> list[torch.Tensor]:
    """The result, and the gradients, of a copy that is compiled."""
    model = copy.deepcopy(model)
    torch.manual_seed(1)
    result = anew(model)(words)
    result.square().sum().backward()
    return [result.detach(), *(p.grad for p in model.parameters())]


def forbid(monkeypatch, *places) -> None:
    """Have calls of these functions fail."""

    def forbidden(*_, **__):
        raise AssertionError("lowered again")

    for where, name in places:
        monkeypatch.setattr(where, name, forbidden)


WORDS = torch.arange(6).reshape(2, 3)
AGAIN = (lowering.GraphLowering, "run"), (graph_cache, "unpack")


@pytest.mark.slow
def test_a_step_is_found_without_lowering_and_without_nodes(monkeypatch):
    model = Words()
    result = step_of(model, WORDS)
    forbid(monkeypatch, *AGAIN)
    outcome = step_of(model, WORDS)
    for a, b in zip(result, outcome, strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
def test_without_the_cache_the_step_is_the_same(monkeypatch):
    model = Words()
    step_of(model, WORDS)
    result = step_of(model, WORDS)
    monkeypatch.setattr(runtime, "key_of_lowering", lambda *_: "")
    for a, b in zip(step_of(model, WORDS), result, strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize("what", [b"", b"no pickle", None])
def test_a_damaged_entry_is_a_slower_start(own_cache, what):
    model = Words()
    result = step_of(model, WORDS)
    for path in own_cache.glob("*.code"):
        if what is None:
            path.unlink()
        else:
            path.write_bytes(what)
    for a, b in zip(result, step_of(model, WORDS), strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
def test_code_that_is_gone_is_made_again(monkeypatch):
    model = Words()
    result = step_of(model, WORDS)
    monkeypatch.setattr(program, "find_stored", lambda *_: None)
    for a, b in zip(result, step_of(model, WORDS), strict=True):
        assert torch.equal(a, b)


@pytest.mark.slow
def test_sizes_options_and_the_table_tell_lowered_graphs_apart(monkeypatch):
    model, keys = Words(), []
    original = lowering_cache.key_of
    monkeypatch.setattr(
        runtime, "key_of_lowering", lambda *x: keys.append(original(*x)) or keys[-1]
    )

    def call(words, **options):
        torch._dynamo.reset()
        with torch.no_grad():
            torch.compile(model, backend="glasshouse", options=options)(words)
        return keys[-1]

    first = call(WORDS)
    assert first and call(WORDS) == first
    others = call(WORDS[:1]), call(WORDS.int()), call(WORDS, dtype="bfloat16")
    assert len({first, *others}) == 4 and all(others)
    with flags.override(strict=True):
        assert call(WORDS) == ""
    monkeypatch.setitem(TABLE, "relu.default", TableEntry(lambda x: x, None))
    assert call(WORDS) == ""


@pytest.mark.slow
def test_tools_name_modules_of_a_lowered_graph_from_the_disk(monkeypatch):
    model, messages = Words().eval(), []
    for _ in range(2):
        with torch.no_grad():
            call = anew(model)
            call(WORDS)
            with gh.profile() as prof, gh.FlopCounter(model) as counter:
                call(WORDS)
        names = {word for word in str(prof).split() if word[0].isalpha() and "FLOP" not in word}
        messages.append((names, counter.total(), str(counter)))
        forbid(monkeypatch, *AGAIN)
    assert messages[0] == messages[1]
    assert {"rows", "layers"} <= messages[0][0]


@pytest.mark.slow
def test_an_index_outside_of_the_table_is_pytorchs_error():
    model = Words().eval()
    for _ in range(2):
        with torch.no_grad():
            call = anew(model)
            call(WORDS)
            with pytest.raises(IndexError):
                call(WORDS + 5)


@pytest.mark.slow
def test_each_number_of_threads_has_its_own():
    model, before = Words().eval(), torch.get_num_threads()
    try:
        with torch.no_grad():
            for count in (1, 2, 1):
                torch.set_num_threads(count)
                torch.testing.assert_close(anew(model)(WORDS), model(WORDS))
    finally:
        torch.set_num_threads(before)
