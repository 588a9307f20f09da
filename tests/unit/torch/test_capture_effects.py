"""Effects of PyTorch's functions beside their results are found in the schemas of their
operators."""

import types

import pytest

import glasshouse as gh

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from glasshouse.torch.front import effects, names  # noqa: E402

pytestmark = pytest.mark.library_warnings
X = torch.linspace(0.1, 0.9, 144).reshape(1, 12, 12)
LSTM = [torch.ones(s) for s in ((12, 2), (12, 3), (12,), (12,), (12, 3), (12, 3), (12,), (12,))]
# Arguments among which each function that draws finds some that it takes.
SAMPLES = (
    (X, 0.5, True),
    (X,),
    ([64],),
    (64,),
    (X, X),
    (X, 9),
    (10, [64]),
    (X, 0.1, 0.9, True),
    (X, 3, (5, 5)),
    (X, X, 0.1, 0.9, True),
    (torch.ones(4, 6, 8), torch.ones(4, 6, 8), torch.randn(4, 6, 8), None, 0.5),
    (torch.ones(3, 1, 2), [torch.zeros(2, 1, 3)] * 2, LSTM, True, 2, 0.5, True, False, False),
)


def drawing() -> dict:
    """The functions and methods of PyTorch's that draw by their schemas, and are nodes, by name."""
    results = {}
    for module in (torch, functional, torch.Tensor):
        for name, fn in vars(module).items():
            is_ours = isinstance(fn, types.FunctionType) and fn.__module__ not in names.NODE_MODULES
            if callable(fn) and not is_ours and not name.startswith("__") and effects.draws(fn):
                results[f"{module.__name__}.{name}"] = fn
    for name in ("rand.default", "randint.default", "bernoulli.p", "normal.float_float"):
        packet, overload = name.split(".")
        results[f"torch.ops.aten.{name}"] = getattr(getattr(torch.ops.aten, packet), overload)
    return results


def read(fn, args) -> float:
    """A number that tells results apart."""
    inputs = [x.clone() if isinstance(x, torch.Tensor) else x for x in args]
    result = fn(*inputs)
    while isinstance(result, (tuple, list)):
        result = result[0]
    values = result.double().abs().sqrt().flatten()
    return (values * torch.arange(1, len(values) + 1)).sum().item()  # their order counts too


def sample_of(fn) -> tuple | None:
    """Arguments with which a function gives another result each time; None where none is here.
    Seeded, so that each process finds the same."""
    torch.manual_seed(0)
    for args in SAMPLES:
        try:
            if len({read(fn, args) for _ in range(3)}) > 1:
                return args
        except Exception:  # other arguments
            continue
    return None


DRAWING = {name: (fn, args) for name, fn in drawing().items() if (args := sample_of(fn))}


def test_most_functions_that_draw_have_a_sample():
    assert len(DRAWING) > 30
    for name in ("_standard_gamma", "feature_dropout", "lstm", "scaled_dot_product_attention"):
        assert any(own.endswith(name) for own in DRAWING), name


@pytest.mark.parametrize("name", DRAWING)
def test_what_is_drawn_is_drawn_in_each_call(name):
    """Of constants too, whose results would else be the same in each call."""
    fn, args = DRAWING[name]

    @gh.optimize
    def drawn(x):
        return x * read(fn, args)

    assert len({drawn(torch.ones((), dtype=torch.float64)).item() for _ in range(4)}) > 1


def test_a_recurrent_layer_draws_for_its_dropout_alone():
    *_, args = SAMPLES
    assert effects.draws(torch.lstm, args)
    assert not effects.draws(torch.lstm, (*args[:5], 0.0, *args[6:]))
    assert effects.draws(torch.lstm)


@pytest.fixture(scope="module")
def custom():
    """An operator of a user's that writes to its second argument."""
    library = torch.library.Library("glasshouse_effects", "FRAGMENT")
    library.define("add_to(Tensor x, Tensor(a!) total) -> ()")
    library.impl("add_to", lambda x, total: (total.add_(x), None)[1], "CPU")
    yield torch.ops.glasshouse_effects.add_to
    library._destroy()


WRITERS = {
    "custom": lambda custom, x, total: custom(x, total),
    "custom overload": lambda custom, x, total: custom.default(x, total),
    "overload": lambda custom, x, total: torch.ops.aten.add_.Tensor(total, x),
    "packet": lambda custom, x, total: torch.ops.aten.add_(total, x),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_what_an_operator_writes_is_written_once(writer, custom):
    """Where a later call raises what the function catches, Python does it again from where nothing
    was written."""
    write = WRITERS[writer]

    def gathered(x, total):
        write(custom, x, total)
        try:
            return torch.gather(total, 0, (x * 9).long())
        except RuntimeError:
            return total.clone()

    def ends(fn):
        total = torch.zeros(3)
        return [fn(torch.ones(3) * v, total).tolist() for v in (0.0, 0.0, 1.0, 0.0)], total.tolist()

    assert ends(gh.optimize(gathered)) == ends(gathered)


@pytest.mark.parametrize("writer", WRITERS)
def test_what_an_operator_wrote_is_read_behind_it(writer, custom):
    """As a number too, which is else read as early as can be."""
    write = WRITERS[writer]

    def added(x):
        total = torch.zeros(1)
        write(custom, x, total)
        later = torch.zeros(1) * x
        write(custom, x, later)
        return x * total.item() + later.item()

    captured = gh.optimize(added)
    for value in (1.0, 2.0, 3.0):
        x = torch.full((1,), value)
        assert captured(x).tolist() == added(x).tolist()


def test_what_depends_on_values_is_marked_so():
    assert effects.depends_on_values(torch.ops.aten.nonzero.default)
    assert effects.depends_on_values("masked_select")
    assert effects.depends_on_values(torch.equal)
    assert not effects.depends_on_values(torch.add)
    assert not effects.depends_on_values("index")


def test_functions_in_python_draw_where_their_code_does():
    for name in ("dropout2d", "gumbel_softmax", "multi_head_attention_forward"):
        assert effects.draws(getattr(functional, name)), name
    for name in ("relu", "layer_norm", "cross_entropy", "embedding", "interpolate", "softmax"):
        assert not effects.draws(getattr(functional, name)), name
    assert not effects.draws(lambda: torch.rand(3))  # no function of PyTorch's
