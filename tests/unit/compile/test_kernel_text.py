"""Cards of a user's in Programs: with a kernel text, with a composition, with neither."""

import warnings

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import BackendError, OptionError
from glasshouse.base.flags import flags
from glasshouse.compile.kernels import c_text
from glasshouse.compile.programs import program, store
from glasshouse.dispatch import KernelText, primitives
from glasshouse.graph import composition, record
from glasshouse.graph.graph import graph_of
from glasshouse.graph.recompute.recompute import is_cheap
from glasshouse.ops.elementwise import elementwise

FLOATS = ("float16", "bfloat16", "float32", "float64")
TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6, "float64": 1e-14}


@pytest.fixture
def backend():
    """The lazy backend, which compiles at once; cards that a test defines are forgotten."""
    before = set(primitives)
    with gh.backends.use("lazy") as backend, flags.override(compile="always"):
        backend.evaluate()  # what other tests left
        yield backend
        backend.evaluate()
    for name in set(primitives) - before:
        del primitives[name]
    c_text.faults.clear()
    composition.faults.clear()


def define(name, ref, dtypes="floating", **fields):
    return elementwise(name, f"{name}.", why="a test", ref=ref, dtypes=dtypes, **fields)


def softsign(x):
    return x / (1 + np.abs(x))


def values(dtype="float32", count=5):
    return gh.asarray(np.linspace(-2, 2, count)).to(dtype)


def steps_of(*results):
    """The kinds and names of the steps that make the results, which are computed."""
    with program.plans_kept():
        kernel_program = program.compiled(record.describe(record.recorder.pending))
    gh.eval(*results)
    return [(info.kind, info.name) for info in kernel_program.step_infos()]


def assert_close(got, expected, dtype):
    got, expected = (np.asarray(x.numpy() if hasattr(x, "numpy") else x) for x in (got, expected))
    assert got.dtype == expected.dtype
    wide = np.float64
    np.testing.assert_allclose(
        got.astype(wide), expected.astype(wide), rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype]
    )


# -- without a kernel text --------------------------------------------------------------------


def test_a_card_without_a_kernel_is_a_host_step_among_compiled_ones(backend):
    card = define("test_plain", np.cosh)
    x = values()
    y = card(x * 2) + 1
    kinds = steps_of(y)
    assert ("host", "test_plain") in kinds and [k for k, _ in kinds].count("kernel") == 2
    assert_close(y, np.cosh(x.numpy() * 2) + 1, "float32")


def test_a_name_that_a_helper_in_c_has_says_nothing(backend):
    """`gh_two_to_f32` of native/gh_math.h takes the exponent's bits."""
    card = define("two_to", np.exp2)
    x = values(count=9)
    assert_close(card(x), np.exp2(x.numpy()), "float32")


@pytest.mark.parametrize("name", ["input", "pick", "load", "reduced"])
def test_names_of_the_compiler_are_refused(name):
    with pytest.raises(OptionError, match="reserved"):
        define(name, np.cosh)


# -- with a kernel text -----------------------------------------------------------------------


def test_a_kernel_text_is_right_in_all_its_dtypes(backend):
    inline = define("test_inline", softsign, kernel="{x} / (1 + fabs{f}({x}))")
    helped = define(
        "test_helped",
        softsign,
        kernel=KernelText(
            "test_helped_{suffix}({x})",
            helpers="""
            static inline float test_helped_f32(float x) { return x / (1 + fabsf(x)); }
            static inline double test_helped_f64(double x) { return x / (1 + fabs(x)); }""",
        ),
    )
    xs = {dtype: values(dtype) for dtype in FLOATS}
    results = {(card, d): card(x) for d, x in xs.items() for card in (inline, helped)}
    kinds = {kind for kind, _ in steps_of(*results.values())}
    assert kinds == {"kernel"}
    for (_, dtype), y in results.items():
        assert_close(y, softsign(xs[dtype].numpy()), dtype)


def test_narrow_floats_are_rounded_after_each_card(backend):
    """As the reference does: in float16 1 + 2**-12 is 1."""
    card = define("test_round", lambda x: x + x.dtype.type(2**-12), kernel="{x} + 0x1p-12f")
    x = gh.ones(4, dtype="float16")
    assert ((card(x) - 1) * 4096).tolist() == [0, 0, 0, 0]


def test_texts_by_dtype_leave_the_others_to_the_host(backend):
    card = define(
        "test_some",
        lambda x: np.maximum(x, 0),
        dtypes="real",
        kernel={"float": "{x} > 0 ? {x} : 0", "int8": "({type})({x} & ~({x} >> 7))"},
    )
    xs = [values("float32"), values("int8"), values("int32")]
    ys = [card(x) for x in xs]
    kinds = dict(steps_of(*ys))
    assert set(kinds) == {"kernel", "host"}
    for x, y in zip(xs, ys, strict=True):
        np.testing.assert_array_equal(y.numpy(), np.maximum(x.numpy(), 0))


def test_attrs_stand_in_the_text(backend):
    card = define(
        "test_attrs",
        lambda x, *, slope, power: x * x.dtype.type(slope) ** power,
        kernel="{x} * powf({slope}, {power})",
    )
    x = values()
    ys = [card(x, slope=s, power=p) for s, p in ((0.5, 1), (0.25, 1), (0.5, 3))]
    gh.eval(*ys)
    for y, factor in zip(ys, (0.5, 0.25, 0.125), strict=True):
        assert_close(y, x.numpy() * np.float32(factor), "float32")


def test_the_cost_decides_what_is_computed_again(backend):
    """A costly value that two others need is stored."""
    results = []
    for name, cost in (("test_cheap", 1), ("test_costly", 90)):
        card = define(name, softsign, kernel=KernelText("{x} / (1 + fabsf({x}))", cost))
        y = card(values())
        results.append(len(steps_of(y.sum(), (y * y).sum(), gh.sort(y))))
        x = gh.ones((8, 8))
        y = card(x)
        results[-1] = len(steps_of(y.sum(axis=0), (y * 2).sum(axis=1)))
    assert results[0] < results[1]


def test_training_through_a_card_of_ones_own(backend):
    """Products around it stay compiled, and the gradient is right."""
    card = define(
        "test_train",
        softsign,
        kernel="{x} / (1 + fabsf({x}))",
        derivatives=(lambda y, _x: (1 - abs(y)) * (1 - abs(y)),),
    )
    rng = np.random.default_rng(0)
    w = gh.tensor(rng.normal(size=(4, 3)).astype(np.float32), requires_grad=True)
    x = gh.asarray(rng.normal(size=(5, 4)).astype(np.float32))
    card(x @ w).sum().backward()
    z = x.numpy() @ w.numpy()
    assert_close(w.grad, x.numpy().T @ (1 / (1 + np.abs(z)) ** 2), "float32")


@pytest.mark.parametrize("kernel", ["{x} / (1 + fabsf({x}))", None])
def test_only_what_kernels_compute_is_cheap_to_make_again(backend, kernel):
    """A step of the host is not repeated in the backward pass."""
    card = define("test_again", softsign, kernel=kernel)
    y = card(values())
    graph = graph_of(record.describe(record.recorder.pending))
    (node,) = [node for node in graph.nodes if node.op == "test_again"]
    assert is_cheap(node) == (kernel is not None)
    del y


# -- texts at fault ---------------------------------------------------------------------------

WRONG = {
    "test_unknown": "no_such_function({x})",
    "test_syntax": "{x} / (1 + ",
    "test_operand": "{x} + {y}",
}


def test_a_text_that_does_not_compile_is_told_and_left_to_the_host(backend):
    good = define("test_good", softsign, kernel="{x} / (1 + fabsf({x}))")
    cards = [define(name, softsign, kernel=text) for name, text in WRONG.items()]
    x = values()
    ys = [card(good(x)) for card in cards]
    with pytest.warns(UserWarning) as messages:
        kinds = steps_of(*ys)
    assert sorted(name for kind, name in kinds if kind == "host") == sorted(WRONG)
    for name, text in WRONG.items():
        (message,) = [str(w.message) for w in messages if f"{name} of float32" in str(w.message)]
        assert text in message
    assert any(
        "no_such_function" in str(w.message) and "error:" in str(w.message) for w in messages
    )
    for y in ys:
        assert_close(y, softsign(softsign(x.numpy())), "float32")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once is enough
        (cards[0](x) * 2).numpy()


def test_helpers_that_clash_are_told(backend):
    texts = (f"{{ return {text}; }}" for text in ("x", "x + 1"))
    cards = [
        define(
            f"test_clash{i}",
            (lambda x: x, lambda x: x + 1)[i],
            kernel=KernelText(
                "test_same({x})", helpers=f"static inline float test_same(float x) {t}"
            ),
        )
        for i, t in enumerate(texts)
    ]
    x = values()
    with pytest.warns(UserWarning, match="test_clash1 .*redefinition"):
        y = cards[0](x) + cards[1](x)
        y.numpy()
    assert_close(y, 2 * x.numpy() + 1, "float32")


def test_strict_refuses_a_text_that_does_not_compile(backend):
    card = define("test_strict", softsign, kernel=WRONG["test_unknown"])
    with flags.override(strict=True), pytest.raises(BackendError, match=r"test_strict.*no_such"):
        card(values()).numpy()


# -- compositions -----------------------------------------------------------------------------


def test_a_composition_is_fused_as_its_cards_are(backend):
    card = define("test_composed", softsign, composition=lambda x: x / (abs(x) + 1))
    xs = {dtype: values(dtype) for dtype in FLOATS}
    ys = {dtype: card(x) for dtype, x in xs.items()}
    kinds = steps_of(*ys.values())
    assert {kind for kind, _ in kinds} == {"kernel"}
    assert not any("test_composed" in name for _, name in kinds)
    for dtype, y in ys.items():
        assert_close(y, softsign(xs[dtype].numpy()), dtype)


WRONG_COMPOSITIONS = {
    "test_outside": (lambda x: OUTSIDE[0] + x, "a tensor from outside"),
    "test_itself": (lambda x: primitives["test_itself"](x), "a call of the card itself"),
    "test_raises": (lambda x: x.nothing, "nothing"),
    "test_spec": (lambda x: x > 0, "as the card infers"),
    "test_array": (lambda x: x + np.ones(5), "an array"),
}
OUTSIDE: list = []


def test_a_wrong_composition_is_told_and_left_out(backend):
    OUTSIDE[:] = [gh.ones(5)]
    x = values()
    for name, (fn, said) in WRONG_COMPOSITIONS.items():
        card = define(name, softsign, composition=fn)
        with flags.override(strict=True), pytest.raises(BackendError, match=f"{name}.*{said}"):
            card(x).numpy()
    ys = [primitives[name](x) for name in WRONG_COMPOSITIONS]
    with pytest.warns(UserWarning, match="composition of") as messages:
        kinds = steps_of(*ys)
    assert len(messages) == len(WRONG_COMPOSITIONS)
    assert sorted(name for kind, name in kinds if kind == "host") == sorted(WRONG_COMPOSITIONS)
    for y in ys:
        assert_close(y, softsign(x.numpy()), "float32")


# -- stored code ------------------------------------------------------------------------------


def keys_of(name, *kernels):
    """The keys of one recording with each of the kernels."""
    results = []
    for kernel in kernels:
        card = define(name, softsign, **kernel)
        x = values()
        for _ in range(store.LARGE_NODES):
            x = card(x)
        results.append(store.key_of(record.describe(record.recorder.pending)))
        record.recorder.forget()
        del primitives[name]
    return results


def test_code_is_stored_under_the_texts_of_cards(backend):
    one, same, other, helped, composed, free = keys_of(
        "test_stored",
        {"kernel": "{x} * 2"},
        {"kernel": "{x} * 2"},
        {"kernel": "{x} * 3"},
        {"kernel": KernelText("{x} * 2", helpers="// more")},
        {"composition": lambda x: x * 2},
        {},
    )
    assert one and one == same
    assert len({one, other, helped, free}) == 4
    assert not composed  # what a function does is not known without running it


# -- cards of the package ---------------------------------------------------------------------


def test_booleans_stay_booleans(backend):
    x = gh.asarray([True, True, False])
    ys = [primitives["add"](x, x), primitives["mul"](x, x)]
    gh.eval(*ys)
    assert [y.numpy().view(np.uint8).tolist() for y in ys] == [[1, 1, 0]] * 2


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_bits_of_narrow_floats(backend, dtype):
    x = values(dtype)
    bits = primitives["bitcast"](x * 1, dtype=gh.uint16)
    y = primitives["bitcast"](bits + 1, dtype=x.dtype)
    gh.eval(bits, y)
    expected = x.numpy().view(np.uint16)
    np.testing.assert_array_equal(bits.numpy(), expected)
    np.testing.assert_array_equal(y.numpy().view(np.uint16), expected + 1)
