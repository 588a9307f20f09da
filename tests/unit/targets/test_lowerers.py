"""A user's lowerer (examples/rms_norm_lowerer.py) and a user's target (examples/plain_c): what they
compute, where they are seen, and that Programs made with others are not mixed up with theirs."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import glasshouse as gh
from glasshouse.base.errors import BackendError, OptionError
from glasshouse.base.flags import flags
from glasshouse.cli import main
from glasshouse.compile.lowering.lowerer import claim_nodes
from glasshouse.compile.programs import program, store
from glasshouse.graph import record
from glasshouse.nn import functional as F
from glasshouse.ops.contract import conv, conv_data_grad, conv_weight_grad
from glasshouse.profile.tables import kernel_table

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def example(monkeypatch):
    """Imports a module of the examples."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module


@pytest.fixture
def rms(example):
    return example("rms_norm_lowerer")


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """No Programs yet, in memory or on disk; each is compiled at once, on the default backend."""
    with gh.backends.use("lazy") as backend:
        backend.evaluate()
        monkeypatch.setattr(program, "programs", {})
        with flags.override(cache=str(tmp_path / "cache"), compile="always"):
            yield tmp_path / "cache"


def kinds() -> list[str]:
    """The kinds of all steps of all Programs."""
    entries = program.programs.values()
    return [info.kind for e in entries if e.program for info in e.program.step_infos()]


def drawn(*shape) -> gh.Tensor:
    """Numbers from outside: those that are known are simplified away."""
    return gh.asarray(np.linspace(0.5, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape))


def normalised():
    """An RMS norm and the gradient of its operand."""
    x = gh.tensor(np.random.default_rng(0).standard_normal((6, 5, 33), np.float32))
    x.requires_grad = True
    y = F.rms_norm(x, (33,), drawn(33))
    (y * y * 0.5 + y).sum().backward()
    return y.numpy(), x.grad.numpy()


def test_a_lowerer_computes_the_same_and_so_does_the_gradient(fresh, rms):
    plain = normalised()
    assert "rms norm" not in kinds()
    with gh.targets.use_lowerer(rms.RmsNormKernels()):
        own = normalised()
    assert kinds().count("rms norm") == 1
    for y, z in zip(own, plain, strict=True):
        np.testing.assert_allclose(y, z, rtol=0, atol=2e-6 * np.abs(z).max())


@pytest.mark.slow
def test_a_model_trains_with_a_lowerer(fresh, rms):
    losses, gradients = rms.train(3)
    with gh.targets.use_lowerer(rms.RmsNormKernels()):
        own_losses, own_gradients = rms.train(3)
    assert kinds().count("rms norm") % 3 == 0 and "rms norm" in kinds()
    np.testing.assert_allclose(own_losses, losses, rtol=1e-5)
    for y, z in zip(own_gradients, gradients, strict=True):
        np.testing.assert_allclose(y, z, rtol=0, atol=1e-4 * np.abs(z).max())


@pytest.mark.slow
def test_a_lowerer_is_seen_in_profile_and_analysis(fresh, rms):
    with gh.targets.use_lowerer(rms.RmsNormKernels()):
        with gh.profile() as prof:
            rms.train(2)
        analysed = rms.predicted()
    rows = [row for row in prof.kernels() if row.kind == "rms norm"]
    assert len(rows) == 3 and all(row.time_ns > 0 and row.flops > 0 for row in rows)
    assert {"Sequential.1.norm", "Sequential.2.norm", "Sequential.3"} == {r.module for r in rows}
    assert "rms norm" in kernel_table(prof.trace, row_limit=200)
    assert analysed.startswith("analysis: 3 rms norm kernels, ")


@pytest.mark.slow
def test_show_lists_a_lowerers_steps(rms):
    program.programs.clear()  # an equal lowerer's would serve, and were made before
    script = str(EXAMPLES / "rms_norm_lowerer.py")
    done = CliRunner().invoke(main, ["show", script, "--steps", "2"])
    assert done.exit_code == 0 and "rms norm" in done.output, done.output
    lines = [line.split() for line in done.output.splitlines() if line]
    start = next(i for i, words in enumerate(lines) if words[0] == "program")
    heading, rows = lines[start], lines[start + 1 :]
    number = next(row[0] for row in rows if row[heading.index("rms")] != "0")
    for stage, text in (("steps", "rms norm over (8, 32, 64)"), ("c", "__builtin_sqrtf")):
        command = ["show", "--program", number, "--stage", stage, script, "--steps", "2"]
        assert text in CliRunner().invoke(main, command).output


def test_inside_is_told_from_outside(fresh, rms):
    first, _ = normalised()
    with gh.targets.use_lowerer(rms.RmsNormKernels()):
        normalised()
        inside = kinds().count("rms norm")
    again, _ = normalised()
    assert inside == 1 and kinds().count("rms norm") == 1
    assert (again == first).all()
    with gh.targets.use_lowerer(rms.RmsNormKernels()):  # an equal one: the same Programs
        normalised()
    assert kinds().count("rms norm") == 1


def test_what_was_recorded_before_is_computed_without(fresh, rms):
    y = F.rms_norm(drawn(4, 8), (8,), drawn(8))
    with gh.targets.use_lowerer(rms.RmsNormKernels()):
        y.numpy()
        z = F.rms_norm(drawn(4, 8) * 2, (8,), drawn(8))
    assert z.numpy().shape == (4, 8)
    assert kinds().count("rms norm") == 1


def test_a_captured_function_is_captured_for_each_target(fresh, rms):
    @gh.optimize
    def step(x, w):
        return F.rms_norm(x, (16,), w) + x

    x, w = drawn(3, 16), drawn(16)
    plain = [step(x, w).numpy() for _ in range(3)]
    assert "rms norm" not in kinds()
    with gh.targets.use_lowerer(rms.RmsNormKernels()):
        own = [step(x, w).numpy() for _ in range(3)]
    assert kinds().count("rms norm") == 1
    np.testing.assert_allclose(own, plain, rtol=1e-5)


@pytest.mark.parametrize("case", ["no weight", "float64", "two axes", "used before"])
def test_other_patterns_are_left_to_others(fresh, rms, case):
    x, w = gh.ones((4, 6, 8)) * 3, gh.ones(8)
    with gh.targets.use_lowerer(rms.RmsNormKernels()):
        if case == "no weight":
            y = F.rms_norm(x, (8,))
        elif case == "float64":
            y = F.rms_norm(x.astype("float64"), (8,), w.astype("float64"))
        elif case == "two axes":
            y = F.rms_norm(x, (6, 8), gh.ones((6, 8)))
        else:
            y = x / gh.sqrt((x * x).sum(axis=-1, keepdims=True) / 8.0 + 1e-6)
        np.testing.assert_allclose(y.numpy(), 1, rtol=1e-5)
    assert "rms norm" not in kinds()


def key_of(make) -> str:
    kept = make()
    recording = record.recorder.take()
    assert kept is not None and recording is not None
    return store.key_of(recording)


def test_stored_code_is_told_apart(fresh, rms, monkeypatch):
    def make():
        y = drawn(4, 8)
        for _ in range(12):
            y = F.rms_norm(y, (8,), drawn(8))
        return y

    keys = [key_of(make)]
    with gh.targets.use_lowerer(rms.RmsNormKernels()):
        keys.append(key_of(make))
        assert key_of(make) == keys[1]
        monkeypatch.setattr(rms.RmsNormKernels, "identity", lambda self: "another version")
        keys.append(key_of(make))
        monkeypatch.setattr(rms.RmsNormKernels, "identity", lambda self: None)
        assert key_of(make) == ""  # what cannot say what it is made of is not stored
    assert len(set(keys)) == 3 and "" not in keys
    assert key_of(make) == keys[0]


@pytest.mark.slow
def test_another_process_finds_what_a_lowerer_made(fresh):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import glasshouse as gh\n"
        "from glasshouse.compile.programs import program\n"
        "from rms_norm_lowerer import RmsNormKernels, train\n"
        "with gh.targets.use_lowerer(RmsNormKernels()):\n"
        "    losses, _ = train(2)\n"
        "kinds = [i.kind for e in program.programs.values() for i in e.program.step_infos()]\n"
        "print(losses, kinds.count('rms norm'))\n"
    )
    command = [sys.executable, "-c", code, str(EXAMPLES)]
    environment = {**os.environ, "GH_CACHE": str(fresh), "GH_BACKEND": "lazy"}
    environment["PYTHONPATH"] = str(Path(gh.__file__).parents[1])
    first = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    stored = {path.name: path.stat().st_ino for path in fresh.glob("*.code")}
    again = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert first.stdout == again.stdout and first.stdout.endswith(" 3\n") and stored
    assert stored == {path.name: path.stat().st_ino for path in fresh.glob("*.code")}


def test_bad_arguments_are_refused():
    with pytest.raises(OptionError, match="a Lowerer"), gh.targets.use_lowerer("rms norm"):
        pass
    with pytest.raises(OptionError, match="a Target"), gh.targets.use_target("cpu"):
        pass


def test_a_claim_in_the_wrong_order_is_told(fresh, rms):
    class Shuffled(rms.RmsNormKernels):
        def claims(self, graph, node):
            claim = super().claims(graph, node)
            return claim and gh.targets.Claim(claim.nodes[::-1], claim.reads, claim.results)

    y = F.rms_norm(drawn(4, 8), (8,), drawn(8))
    recording = record.recorder.take()
    message = pytest.raises(BackendError, match="rms norm: claims.*Sort nodes")
    with message, gh.targets.use_lowerer(Shuffled()):
        program.make_program(recording)
    assert y is not None


def test_an_earlier_lowerer_has_the_first_pick(rms):
    class Nothing(gh.targets.Lowerer):
        ops = ("sqrt",)

        def claims(self, graph, node):
            return gh.targets.Claim([node])

    with gh.backends.use("lazy") as backend:
        backend.evaluate()
        y = F.rms_norm(drawn(4, 8), (8,), drawn(8))
        graph = program.rewritten(program.graph_of(record.recorder.take()))
    own = gh.targets.CPU.with_lowerer(rms.RmsNormKernels())
    (root,) = [node for node in graph.nodes if node.op == "sqrt"]
    claims = claim_nodes(graph, own.lowerers)
    assert isinstance(claims[root.number].lowerer, rms.RmsNormKernels)
    assert len(claims[root.number].nodes) > 5
    assert claim_nodes(graph, own.with_lowerer(Nothing()).lowerers)[root.number].nodes == [root]
    assert own is gh.targets.CPU.with_lowerer(rms.RmsNormKernels()) and y is not None


def test_a_pass_of_the_users_rewrites_graphs_inside(fresh, example):
    own = example("division_pass")
    x = drawn(40, 30)
    plain = own.standardised(x).numpy()
    with gh.targets.use_pass(own.reciprocals_first):
        result = own.standardised(x).numpy()
    assert (own.standardised(x).numpy() == plain).all() and len(program.programs) == 2
    np.testing.assert_allclose(result, plain, rtol=0, atol=1e-6)
    with pytest.raises(OptionError, match="a function"), gh.targets.use_pass("mine"):
        pass


@pytest.mark.slow
def test_show_prints_the_graph_after_a_users_pass():
    script = str(EXAMPLES / "division_pass.py")
    command = [sys.executable, "-m", "glasshouse.cli", "show", script]
    environment = {**os.environ, "PYTHONPATH": str(Path(gh.__file__).parents[1])}
    how = {"env": environment, "capture_output": True, "text": True, "check": False}
    shown = subprocess.run([*command, "--program", "1", "--stage", "reciprocals_first"], **how)
    assert shown.stdout.count("primitives['div']") == 2
    wrong = subprocess.run([*command, "--stage", "reciprocals"], **how)
    assert wrong.returncode == 2 and "reuse_results" in wrong.stderr


# -- a target ---------------------------------------------------------------------------------


def test_a_target_computes_fused_kernels_with_the_same_bits(fresh, example):
    def make():
        x = gh.asarray(np.random.default_rng(0).standard_normal((300, 70), np.float32))
        y = F.softmax(gh.tanh(x) * 3 + gh.exp(x), dim=-1)
        return [a.numpy() for a in (y, y.sum(axis=0), (y * y).sum(), x.max(axis=1), F.gelu(x))]

    expected = make()
    with gh.targets.use_target(example("plain_c").PLAIN_C):
        result = make()
    assert all((y == z).all() for y, z in zip(result, expected, strict=True))
    plans = [e.program for key, e in program.programs.items() if "plain c" in repr(key)]
    texts = [kernel.text for p in plans for kernel in p.sources.values()]
    assert texts and not any("omp" in text for text in texts)


CONVOLUTIONS = {
    "padding": ((2, 3, 7, 6), (4, 3, 3, 3), {"padding": ((1, 1), (0, 2))}),
    "stride": ((2, 3, 9, 8), (5, 3, 3, 2), {"stride": (2, 3)}),
    "dilation": ((1, 2, 9, 9), (3, 2, 3, 3), {"dilation": (2, 1)}),
    "groups": ((2, 4, 5, 5), (6, 2, 3, 3), {"groups": 2, "padding": ((1, 1), (1, 1))}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_targets_convolutions_are_those_of_the_references(fresh, example, name):
    shape, weights, options = CONVOLUTIONS[name]
    plain = {"stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1), "groups": 1}
    options, rng = {**plain, **options}, np.random.default_rng(0)
    x, w = (rng.standard_normal(s, np.float32) for s in (shape, weights))

    def make():
        data, kernel = gh.asarray(x), gh.asarray(w)
        y = conv(data, kernel, **options)
        dx = conv_data_grad(y, kernel, shape=shape[2:], **options)
        dw = conv_weight_grad(data, y, shape=weights[2:], **options)
        return [a.numpy() for a in (y, dx, dw)]

    with gh.backends.use("numpy"):
        expected = make()
    with gh.targets.use_target(example("plain_c").PLAIN_C):
        result = make()
    assert kinds().count("plain convolution") == 3 and "host" not in kinds()
    for y, z in zip(result, expected, strict=True):
        np.testing.assert_allclose(y, z, rtol=0, atol=1e-5 * np.abs(z).max())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_targets_products_are_those_of_the_references(fresh, example, dtype):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in ((3, 5, 7), (3, 7, 4)))
    with gh.targets.use_target(example("plain_c").PLAIN_C):
        result = (gh.asarray(a) @ gh.asarray(b)).numpy()
        turned = (gh.asarray(a[0]).T @ gh.asarray(a[1])).numpy()
    np.testing.assert_allclose(result, a @ b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(turned, a[0].T @ a[1], rtol=1e-5, atol=1e-5)
    assert kinds().count("plain product") == 2


@pytest.mark.slow
def test_the_digits_train_on_a_target_with_the_same_results(fresh, example):
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    digits = example("plain_c.train_digits")
    (own,), (ours,) = (digits.train(t, 1) for t in (digits.PLAIN_C, gh.targets.CPU))
    assert own["test_accuracy"] > 0.9
    assert own["test_accuracy"] == pytest.approx(ours["test_accuracy"], abs=0.01)
    assert own["train_loss"] == pytest.approx(ours["train_loss"], rel=1e-3)
    assert {"plain convolution", "plain product"} <= set(digits.kinds_of_steps(digits.PLAIN_C))


@pytest.mark.slow
def test_the_examples_run():
    paths = os.pathsep.join([str(Path(gh.__file__).parents[1]), str(EXAMPLES)])
    environment = {**os.environ, "PYTHONPATH": paths}
    command = [sys.executable, str(EXAMPLES / "rms_norm_lowerer.py"), "--steps", "2"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "3 rms norm kernels" in done.stdout and done.stderr == ""
