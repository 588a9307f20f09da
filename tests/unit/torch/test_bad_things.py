"""Faults and changes between the calls of a compiled model: results stay right."""

import copy
import io
import os
import pickle
import re
import signal
import threading
import time
import warnings
from pathlib import Path

import pytest

import glasshouse as gh
from glasshouse.base.errors import DTypeError, OptionError

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional

pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore:.*isinstance.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    # TorchDynamo looks at .grad of what comes out of an earlier graph
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),
]


def compiled(function, **options):
    from glasshouse.torch.backend.entry_point import glasshouse

    return torch.compile(function, backend=glasshouse, **options)


def small_model() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def batch():
    torch.manual_seed(3)
    return torch.randn(10, 6), torch.randint(0, 3, (10,))


def train(model, call, optimizer, steps: int) -> list[float]:
    x, y = batch()
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(call(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def momentum(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


# -- operators without an entry, and graphs that break ------------------------------------------


@pytest.mark.slow
def test_an_operator_without_an_entry_has_its_gradient():
    model, x = small_model(), batch()[0]

    def function(x):
        h = model(x)
        return torch.linalg.cholesky(h.mT @ h + torch.eye(3)).sum()

    compiled(function)(x).backward()
    grads = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    function(x).backward()
    for ours, p in zip(grads, model.parameters()):
        torch.testing.assert_close(ours, p.grad, rtol=1e-4, atol=1e-5)


def test_an_operator_without_an_entry_is_named_and_refused_if_strict(monkeypatch):
    from glasshouse.base.flags import flags

    x, call = torch.eye(3) * 4, compiled(torch.linalg.cholesky)  # backends take the flag when made
    monkeypatch.setattr(flags, "strict", True)
    with pytest.raises(Exception, match="linalg_cholesky_ex"):
        call(x)


def test_what_strict_refuses_is_told_with_module_and_line(monkeypatch):
    from glasshouse.base.flags import flags

    class Root(nn.Module):
        def forward(self, x):
            return torch.linalg.cholesky(x)

    call = compiled(nn.Sequential(Root()))
    monkeypatch.setattr(flags, "strict", True)
    line = Root.forward.__code__.co_firstlineno + 1
    with pytest.raises(Exception, match=rf"torch.compile, 0, \S+{Path(__file__).name}:{line}: "):
        call(torch.eye(3))


@pytest.mark.parametrize(
    "named, message",
    [
        ({"options": {"stict": True}}, "got 'stict'. Did you mean 'strict'?"),
        ({"options": {"strict": "yes"}}, "expected True or False; got 'yes'"),
        ({"options": {"threads": -1}}, "expected a whole number, 0 or more; got -1"),
        ({"options": {"dtype": "float23"}}, "expected 'bfloat16' or 'float16'; got 'float23'"),
        ({"options": {"memory_budget": "lots"}}, "or a part such as 0.6"),
        ({"options": ["strict"]}, "expected a dict"),
        ({"mode": "max-autotunes"}, "Did you mean 'max-autotune'?"),
    ],
)
def test_a_wrong_option_is_told_with_what_to_write(named, message):
    with pytest.raises(Exception, match=re.escape(message)):
        compiled(torch.relu, **named)(torch.ones(2))


def no_compiler(monkeypatch, tmp_path):
    from glasshouse.base.flags import flags
    from glasshouse.compile.building import toolchain

    toolchain.find_compiler.cache_clear()
    monkeypatch.setattr(flags, "cc", "/no/compiler")
    monkeypatch.setattr(flags, "cache", str(tmp_path))


def test_without_a_compiler_pytorch_computes_and_the_warning_says_what_to_install(
    monkeypatch, tmp_path
):
    no_compiler(monkeypatch, tmp_path)
    x = torch.randn(3, 7, 5)
    with pytest.warns(UserWarning, match=r"looked for /no/compiler\). Install gcc or clang"):
        assert torch.equal(compiled(lambda x: x.tan() * x)(x), x.tan() * x)


def test_without_a_compiler_strict_says_what_to_install(monkeypatch, tmp_path):
    no_compiler(monkeypatch, tmp_path)
    call = compiled(lambda x: x.tan() - x, options={"strict": True})
    with pytest.raises(Exception, match=r"got no C compiler found.*Install gcc or clang"):
        call(torch.randn(3, 7, 5))


def test_modes_of_inductor_change_nothing():
    x = torch.randn(3)
    assert torch.equal(compiled(torch.relu, mode="reduce-overhead")(x), torch.relu(x))


SEEN: list[tuple] = []  # where the operands of a foreign operator lie, and how


@torch.library.custom_op("glasshouse_tests::product_across", mutates_args=())
def product_across(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    SEEN.append((w.data_ptr(), x.stride(), w.stride()))
    return (x @ w).t().contiguous().t(), x.clone()


@product_across.register_fake
def product_across_fake(x, w):
    return x.new_empty(w.shape[1], x.shape[0]).t(), torch.empty_like(x)


def test_foreign_operators_take_and_give_axes_in_the_order_of_eager():
    def step(x, w):
        across, same = product_across((x * 2).t(), w.t())
        return across, same, across.exp()

    x, w = torch.randn(6, 5), torch.randn(4, 6)
    SEEN.clear()
    expected = step(x, w)
    compiled = torch.compile(step, backend="glasshouse", fullgraph=True)
    for _ in range(2):
        results = compiled(x, w)
        assert [r.stride() for r in results] == [e.stride() for e in expected]
        torch.testing.assert_close(results, expected)
    assert len(SEEN) == 3 and len(set(SEEN)) == 1  # the weight where it is, without a copy


@torch.library.custom_op("glasshouse_tests::twice_and_one", mutates_args=())
def twice_and_one(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


@twice_and_one.register_fake
def _(x):
    return torch.empty_like(x)


def test_an_operator_of_the_users_is_computed_by_pytorch():
    x = torch.randn(5)
    torch.testing.assert_close(compiled(lambda x: twice_and_one(x) * 3)(x), (x * 2 + 1) * 3)


def test_an_operator_that_gives_other_sizes_than_it_promised():
    """PyTorch's fake tensors are wrong about what embedding_bag notes for its backward pass."""
    table = nn.EmbeddingBag(5, 4, mode="sum").bfloat16()
    rows, weights = torch.tensor([[0, 2, 4], [1, 1, 3]]), torch.rand(2, 3).bfloat16()
    ours = compiled(table)(rows, per_sample_weights=weights)
    ours.float().sum().backward()
    grad = table.weight.grad.clone()
    table.zero_grad()
    theirs = table(rows, per_sample_weights=weights)
    theirs.float().sum().backward()
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(grad, table.weight.grad)


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
def test_a_dtype_that_we_do_not_have_is_left_to_pytorch_and_refused_if_strict():
    def halve(x):
        return x.chalf().to(torch.complex64) * 2

    x = torch.ones(3)
    with pytest.warns(UserWarning, match="complex32"):
        assert torch.equal(compiled(halve)(x), halve(x))
    torch._dynamo.reset()
    with pytest.raises(
        Exception, match=r"expected a dtype that Glasshouse has; got torch.complex32"
    ):
        compiled(halve, options={"strict": True})(x)


@pytest.mark.slow
def test_a_graph_that_breaks_in_the_middle_of_training():
    def call(model):
        def function(x):
            h = model[1](model[0](x))
            if h.mean().item() > 1e6:  # breaks the graph
                h = h * 0
            return model[3](model[2](h))

        return function

    ours, theirs = small_model(), small_model()
    losses = train(ours, compiled(call(ours)), momentum(ours), 4)
    assert losses == pytest.approx(train(theirs, call(theirs), momentum(theirs), 4), rel=1e-4)


# -- exceptions ---------------------------------------------------------------------------------


def test_after_an_exception_all_goes_on():
    def function(x, wrong):
        y = x * 2
        if wrong:
            raise ValueError("from inside")
        return y

    call, x = compiled(function), torch.ones(2)
    for wrong in (False, True, False):
        if wrong:
            with pytest.raises(ValueError, match="from inside"):
                call(x, wrong)
        else:
            assert call(x, wrong).tolist() == [2.0, 2.0]


def test_shapes_that_do_not_fit_are_pytorchs_error():
    call = compiled(lambda x, y: x @ y)
    with pytest.raises(Exception, match="reduction dim|multiplied"):
        call(torch.ones(2, 3), torch.ones(2, 3))
    assert call(torch.ones(2, 3), torch.ones(3, 2)).shape == (2, 2)


def test_a_matrix_that_a_step_of_pytorch_refuses_is_its_error():
    call = compiled(lambda x: torch.linalg.cholesky(x) + 1)
    with pytest.raises(torch.linalg.LinAlgError):
        call(-torch.eye(3))
    torch.testing.assert_close(call(torch.eye(3)), torch.eye(3) + 1)


def test_ctrl_c_between_the_steps_of_a_loop():
    """It is sent until it arrives: TorchDynamo's guards lose one that comes while they run."""
    model, (x, _) = small_model().eval(), batch()
    call = compiled(model)
    expected = call(x)
    arrived = threading.Event()

    def send():
        while not arrived.wait(0.2):
            os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send)
    try:
        sender.start()
        until = time.monotonic() + 20
        while time.monotonic() < until:
            call(x)
        interrupted = False
    except KeyboardInterrupt:
        interrupted = True
    finally:
        arrived.set()
        sender.join()
    assert interrupted
    assert torch.equal(call(x), expected)


# -- copies and checkpoints ---------------------------------------------------------------------


def test_a_compiled_model_is_deeply_copied():
    model, (x, _) = small_model().eval(), batch()
    call = compiled(model)
    expected = call(x)
    twin = copy.deepcopy(call)
    with torch.no_grad():
        model[0].weight.zero_()
    torch.testing.assert_close(twin(x), expected)
    torch.testing.assert_close(call(x), model(x))


def test_a_compiled_model_is_pickled():
    model, (x, _) = small_model().eval(), batch()
    call = compiled(model)
    expected = call(x)
    torch.testing.assert_close(pickle.loads(pickle.dumps(call))(x), expected)


@pytest.mark.parametrize("first", ["eager", "ours"])
def test_training_goes_on_from_the_others_checkpoint(first):
    def wrap(model, ours: bool):
        return compiled(model) if ours else model

    whole = small_model()
    expected = train(whole, whole, momentum(whole), 6)
    model = small_model()
    optimizer = momentum(model)
    losses = train(model, wrap(model, first == "ours"), optimizer, 3)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file)
    model = small_model()
    optimizer = momentum(model)
    call = wrap(model, first == "eager")
    train(model, call, optimizer, 1)  # compiled before the checkpoint is read
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    losses += train(model, call, optimizer, 3)
    assert losses == pytest.approx(expected, rel=1e-4)


# -- what changes between calls -----------------------------------------------------------------


@pytest.mark.slow
def test_inference_after_training_and_back():
    model, (x, _) = small_model(), batch()
    call, optimizer = compiled(model), momentum(model)
    train(model, call, optimizer, 2)
    with torch.no_grad():
        torch.testing.assert_close(call(x), copy.deepcopy(model)(x))
        model.eval()
        y = call(x)
        assert not y.requires_grad
        torch.testing.assert_close(y, model(x))
    model.train()
    model.zero_grad()
    twin = copy.deepcopy(model)
    call(x).sum().backward()
    twin(x).sum().backward()
    for ours, theirs in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_parameter_that_is_resized():
    layer, x = nn.Linear(3, 2), torch.randn(4, 3)
    call = compiled(layer)
    call(x)
    layer.weight = nn.Parameter(torch.randn(5, 3))
    layer.bias = nn.Parameter(torch.randn(5))
    torch.testing.assert_close(call(x), layer(x))
    layer.weight.data = torch.randn(6, 3)
    layer.bias.data = torch.randn(6)
    torch.testing.assert_close(call(x), layer(x))
    layer.double()
    torch.testing.assert_close(call(x.double()), layer(x.double()))


@pytest.mark.slow
def test_a_frozen_parameter_gets_no_gradient_and_a_thawed_one_does():
    model, (x, _) = small_model(), batch()
    call = compiled(model)
    for frozen in (True, False):
        model[0].weight.requires_grad_(not frozen)
        model.zero_grad()
        call(x).sum().backward()
        assert (model[0].weight.grad is None) == frozen
        assert model[3].weight.grad is not None


# -- threads and processes ----------------------------------------------------------------------


@pytest.mark.slow
def test_threads_that_train_models_of_their_own():
    expected_model = small_model()
    expected = train(expected_model, expected_model, momentum(expected_model), 4)
    models = [small_model() for _ in range(3)]
    calls = [compiled(model) for model in models]
    losses = {}

    def work(number):
        model = models[number]
        x, y = inputs
        optimizer, losses[number] = momentum(model), []
        for _ in range(4):
            optimizer.zero_grad()
            loss = functional.cross_entropy(calls[number](x), y)
            loss.backward()
            optimizer.step()
            losses[number].append(loss.item())

    inputs = batch()
    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number in range(3):
        assert losses[number] == pytest.approx(expected, rel=1e-4)


class Transformed(torch.utils.data.Dataset):
    """Items that a compiled function makes, in the worker's process."""

    def __init__(self, call):
        self.call = call

    def __len__(self):
        return 6

    def __getitem__(self, number):
        return self.call(torch.full((40, 40), float(number)))


def test_workers_of_a_data_loader_that_are_forked():
    def function(x):
        return (x @ x).relu().sum(1)

    call = compiled(function)
    call(torch.ones(40, 40))  # compiled, and threads started, before the fork
    loader = torch.utils.data.DataLoader(
        Transformed(call), batch_size=3, num_workers=2, multiprocessing_context="fork", timeout=60
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        items = torch.cat(list(loader))
    expected = torch.stack([function(torch.full((40, 40), float(i))) for i in range(6)])
    torch.testing.assert_close(items, expected)
    torch.testing.assert_close(call(torch.ones(40, 40)), function(torch.ones(40, 40)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: gh.optimize("inducter"), "Did you mean 'inductor'"),
        (
            lambda: gh.optimize(nn.Linear(2, 2)(torch.ones(2))),
            "got torch.Tensor. Pass the function",
        ),
        (lambda: gh.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1), "Glasshouse tensors"),
    ],
)
def test_first_mistakes_are_told_with_what_to_do(wrong, message):
    with pytest.raises((OptionError, DTypeError), match=message):
        wrong()
