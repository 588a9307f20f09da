"""One structure with many sizes: the same bits, and kernels that are compiled once."""

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.building import toolchain
from glasshouse.compile.kernels import kernel_cache
from glasshouse.compile.programs import program
from glasshouse.compile.programs.code import coded
from glasshouse.nn import functional as F


@pytest.fixture(autouse=True)
def empty(tmp_path):
    """An empty cache, no Program and no structure in memory."""
    gh.backends.load("lazy").evaluate()
    forget()
    settings = {"cache": str(tmp_path / "cache"), "compile": "always"}
    with flags.override(**settings), gh.backends.use("lazy"):
        yield
    forget()


def forget():
    program.programs.clear()
    program.structures.clear()


def draw(*shape, dtype="float32"):
    rng = np.random.default_rng(len(shape))
    return gh.asarray(rng.standard_normal(shape).astype("float32")).astype(dtype)


def attention(n: int):
    q = gh.tensor(draw(2, n, 8).numpy(), requires_grad=True)
    weights = F.softmax(q @ gh.permute_dims(q, (0, 2, 1)), dim=-1)
    (weights @ q * draw(2, n, 8)).sum().backward()
    return weights.detach(), q.grad


def norms(n: int):
    x = gh.tensor(draw(n, 5, 32).numpy(), requires_grad=True)
    y = F.layer_norm(x, (32,), draw(32), draw(32)) + F.softmax(x, dim=0)
    y.backward(draw(n, 5, 32))
    return y.detach(), x.grad


def columns(n: int):
    x = draw(n, 3, 40)
    return x.sum(axis=0), x.sum(axis=(0, 2)), x.max(axis=1), gh.exp(x).sum(), x.mean(axis=(0, 1))


def images(n: int):
    x = gh.tensor(draw(3, 4, n, n).numpy(), requires_grad=True)
    y = F.avg_pool2d(F.batch_norm(x, None, None, draw(4), draw(4), training=True), 2)
    y.sum().backward()
    return y.detach(), x.grad


def moves(n: int):
    x = draw(n, 6, 20)
    turned = gh.permute_dims(x, (2, 0, 1)) * 2 + gh.flip(draw(20, n, 6), axis=0)
    table = gh.tensor(draw(n, 7).numpy(), requires_grad=True)
    taken = F.embedding(gh.asarray(np.arange(3 * n) % n), table)
    (taken * draw(3 * n, 7)).sum().backward()
    return turned, taken.detach(), table.grad, gh.concat([x, x + 1], axis=1), gh.arange(n) * 3


FUNCTIONS = (attention, norms, columns, images, moves)
SIZES = (6, 40, 17, 130, 64)  # short, even and uneven rows


def bits(results) -> list[bytes]:
    return [x.numpy().tobytes() for x in results]


@pytest.mark.slow
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_kernels_for_all_sizes_give_the_bits_of_those_for_one(fn, monkeypatch):
    together = [bits(fn(n)) for n in SIZES]
    assert any(hasattr(e.program, "sizes") and any(e.program.sizes.values()) for e in entries())
    monkeypatch.setattr(kernel_cache, "names_that_matter", list)  # all sizes are constants
    for n, expected in zip(SIZES, together, strict=True):
        forget()
        assert bits(fn(n)) == expected
        assert not any(any(entry.program.sizes.values()) for entry in entries())


def entries():
    return [entry for entry in program.programs.values() if entry.program is not None]


def test_a_reference_agrees():
    for n in SIZES:
        for value, expected in zip(attention(n), run_numpy(attention, n), strict=True):
            np.testing.assert_allclose(value.numpy(), expected, rtol=2e-4, atol=2e-5)


def run_numpy(fn, n):
    with gh.backends.use("numpy"):
        return [x.numpy() for x in fn(n)]


@pytest.mark.slow
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_further_sizes_compile_less_than_one_program(fn, monkeypatch):
    """Only ways to cut a row that no size before took: even and uneven, in chunks or not."""
    gh.eval(*fn(18))
    gh.eval(*fn(34))
    first, built, real = len(entries()[-1].program.sources), [], kernel_cache.build_kernels

    def counted(kernels, dialect):
        built.extend(kernels)
        return real(kernels, dialect)

    monkeypatch.setattr(kernel_cache, "build_kernels", counted)
    for n in range(36, 76, 8):  # windows of 2 x 2 fit into all of them
        gh.eval(*fn(n))
    assert len(built) <= first


def test_sizes_that_stay_are_constants():
    for n in (10, 20, 30):
        gh.eval(F.softmax(draw(n, 33), dim=-1))
    last = entries()[-1].program
    (source,), (sizes,) = last.sources.values(), last.sizes.values()
    assert "enum { n_i = 33 };" in source.text and "int64_t n_p0 = (int64_t)a[" in source.text
    assert sizes["n_p0"] == 30 and "n_i" not in sizes


def test_the_first_program_is_compiled_for_the_sizes_that_matter():
    """The length of rows, and all of a sum of columns; not how many rows there are."""
    gh.eval(F.softmax(draw(12, 33), dim=-1))
    gh.eval(draw(12, 33).sum(axis=0))
    rows, columns = (entry.program for entry in entries())
    (source,), (sizes,) = rows.sources.values(), rows.sizes.values()
    assert "enum { n_i = 33 };" in source.text and sizes == {"n_p0": 12, "step0": 33}
    assert not any(columns.sizes.values())


def test_another_number_of_rows_compiles_nothing(monkeypatch):
    gh.eval(F.layer_norm(draw(12, 48), (48,), draw(48), draw(48)) * 2)
    monkeypatch.setattr(kernel_cache, "build_kernels", None)  # would fail
    gh.eval(F.layer_norm(draw(13, 48), (48,), draw(48), draw(48)) * 2)


@pytest.mark.slow
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_a_program_that_runs_for_long_gets_kernels_of_its_own_sizes(fn):
    for n in SIZES[:3]:
        gh.eval(*fn(n))
    general = [entry.program for entry in entries() if entry.program.general]
    assert general
    expected = bits(fn(SIZES[2]))
    for run in general:
        run.general_ns = 1  # of runs, before it gets kernels of its own
    assert bits(fn(SIZES[2])) == expected
    assert bits(fn(SIZES[2])) == expected  # the run before has compiled them
    own = [run for run in general if not run.general]
    assert own
    for run in own:
        for text, sizes in zip(run.sources.values(), run.sizes.values(), strict=True):
            assert not kernel_cache.names_that_matter(sizes), text


def test_a_program_whose_own_kernels_do_not_compile_goes_on(monkeypatch):
    for n in SIZES[:3]:
        gh.eval(*attention(n))
    expected = bits(attention(SIZES[2]))

    tried = []

    def fail(*_):
        tried.append(1)
        raise toolchain.CompileError("no compiler any more")

    for entry in entries():
        entry.program.general_ns = 1
    monkeypatch.setattr(kernel_cache, "build_kernels", fail)
    for _ in range(3):
        assert bits(attention(SIZES[2])) == expected
    assert tried


@pytest.mark.parametrize("size", [0, 1, -1, 5, 1 << 40, -(1 << 54), (1 << 55) - 1])
def test_sizes_are_coded_with_their_sign(size):
    assert kernel_cache.coded_size(coded(("size", size))) == size


@pytest.mark.slow
def test_the_second_size_of_a_model_compiles_kernels_for_all(monkeypatch):
    """Although its first step, which also makes its weights and those of its optimizer, is another
    recording than the second."""
    built, real = [], kernel_cache.build_kernels

    def counted(kernels, dialect):
        built.append(len(kernels))
        return real(kernels, dialect)

    monkeypatch.setattr(kernel_cache, "build_kernels", counted)
    model = gh.nn.Sequential(gh.nn.Linear(16, 32), gh.nn.ReLU(), gh.nn.Linear(32, 4))
    optimizer = gh.optim.AdamW(model.parameters(), lr=0.01)
    for n in (20, 36, 52, 68):
        loss = F.cross_entropy(model(draw(n, 16)), gh.asarray(np.zeros(n, np.int64)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert len(built) == 2
