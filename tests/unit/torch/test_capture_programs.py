"""Training steps as programs write them, captured: losses, parameters and the optimizer's state of
several steps are eager's."""

import contextlib
import copy
import functools

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from same_outcome import same_outcome, same_story  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, parametrize  # noqa: E402
from torch.optim import swa_utils  # noqa: E402

import glasshouse as gh  # noqa: E402
from glasshouse.bench.torch_cases import prepare_torchvision  # noqa: E402

pytestmark = pytest.mark.library_warnings


class Net(nn.Module):
    def __init__(self, features=6):
        super().__init__()
        self.first, self.norm, self.last = (
            nn.Linear(6, features),
            nn.BatchNorm1d(6),
            nn.Linear(6, 5),
        )

    def forward(self, x):
        return self.last(torch.tanh(self.norm(self.first(x))))


def rows(number):
    generator = torch.Generator().manual_seed(number)
    return torch.randn(4, 6, generator=generator), torch.randint(0, 5, (4,), generator=generator)


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def take_step(model, optimizer, x, y):
    loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss


def plain(change=lambda model: None):
    """A story of plain steps of a model to which something was done."""

    def make():
        model = Net()
        change(model)
        optimizer = sgd(model)
        step = functools.partial(take_step, model, optimizer)
        return lambda x, y: step(x, y), rows, lambda: (model.state_dict(), optimizer.state_dict())

    return make


class Symmetric(nn.Module):
    def forward(self, weight):
        return weight.triu() + weight.triu(1).T


CHANGES = {
    "parametrization": lambda m: parametrize.register_parametrization(
        m.first, "weight", Symmetric()
    ),
    "orthogonal": lambda m: parametrizations.orthogonal(m.first),
    "weight norm": lambda m: parametrizations.weight_norm(m.first),
    "spectral norm": lambda m: parametrizations.spectral_norm(m.first),
    "forward hooks": lambda m: (
        m.first.register_forward_hook(lambda module, args, out: out * 0.5),
        m.last.register_forward_pre_hook(lambda module, args: (args[0] + 1,)),
    ),
}


def by_closure():
    """As Lightning has it: the optimizer calls what computes the loss."""
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

    def closure(x, y):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        return loss

    def step(x, y):
        return optimizer.step(functools.partial(closure, x, y))

    return step, rows, lambda: (model, optimizer)


def with_average():
    """An exponential average of the parameters, by hand."""
    model = Net()
    shadow, optimizer = copy.deepcopy(model).requires_grad_(False), sgd(model)

    @torch.no_grad()
    def update(decay=0.9):
        for mine, theirs in zip(shadow.parameters(), model.parameters()):
            mine.mul_(decay).add_(theirs, alpha=1 - decay)
        for mine, theirs in zip(shadow.buffers(), model.buffers()):
            mine.copy_(theirs)

    def step(x, y):
        loss = take_step(model, optimizer, x, y)
        update()
        return loss

    return step, rows, lambda: (model, optimizer, shadow)


def with_groups_and_schedule():
    model = Net()
    groups = [{"params": model.first.parameters(), "lr": 0.01}, {"params": model.last.parameters()}]
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, [0.01, 0.1], total_steps=20)

    def step(x, y):
        loss = take_step(model, optimizer, x, y)
        schedule.step()
        return loss

    return step, rows, lambda: (model, optimizer)


def by_functional_call():
    model = Net()
    parameters = {k: p.detach().clone().requires_grad_() for k, p in model.named_parameters()}

    def step(x, y):
        loss = F.cross_entropy(torch.func.functional_call(model, parameters, (x,)), y)
        gradients = torch.autograd.grad(loss, list(parameters.values()))
        with torch.no_grad():
            for p, gradient in zip(parameters.values(), gradients):
                p.sub_(gradient, alpha=0.1)
        return loss

    return step, rows, lambda: (model, parameters)


def by_learned_start():
    """MAML: a step that is differentiated through an inner one."""
    model = Net()
    optimizer = sgd(model)

    def step(x, y):
        start = dict(model.named_parameters())
        loss = F.cross_entropy(torch.func.functional_call(model, start, (x,)), y)
        gradients = torch.autograd.grad(loss, list(start.values()), create_graph=True)
        moved = {k: p - 0.1 * g for (k, p), g in zip(start.items(), gradients)}
        outer = F.cross_entropy(torch.func.functional_call(model, moved, (x,)), y)
        optimizer.zero_grad()
        outer.backward()
        optimizer.step()
        return outer

    return step, rows, lambda: (model, optimizer)


def with_targets():
    """Labels as vectors, mixed."""
    model = Net()
    optimizer = sgd(model)

    def step(x, y):
        target = F.one_hot(y, 5).float()
        target = 0.7 * target + 0.3 * target.flip(0)
        loss = torch.sum(-target * F.log_softmax(model(0.7 * x + 0.3 * x.flip(0)), -1), -1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step, rows, lambda: (model, optimizer)


WHOLE = {f"with {name}": plain(change) for name, change in CHANGES.items()}
WHOLE |= {
    f.__name__: f
    for f in (
        by_closure,
        with_average,
        with_groups_and_schedule,
        by_functional_call,
        by_learned_start,
        with_targets,
    )
}


@pytest.mark.parametrize("make", WHOLE.values(), ids=WHOLE)
def test_a_program_is_captured_without_a_break(make):
    gh.reset()  # of what other programs made it leave to Python
    captured = same_story(make)
    assert not captured.capture.breaks
    assert captured.hits >= 3


def test_one_hot_with_a_number_of_classes_raises_what_eager_raises():
    labels = [(torch.tensor([0, number]),) for number in (2, 1, 5, -1, 2)]
    for compiler in ("eager", "program"):
        same_outcome(
            lambda y: F.one_hot(y, 3).float() * 2, *labels, compiler=compiler, graphs=1, breaks=[]
        )


# -- programs that look at values, in pieces -------------------------------------------------------


def with_averaged_model():
    """PyTorch's own average, which looks at how often it was updated."""
    model = Net()
    average, optimizer = swa_utils.AveragedModel(model, use_buffers=True), sgd(model)

    def step(x, y):
        loss = take_step(model, optimizer, x, y)
        average.update_parameters(model)
        return loss

    return step, rows, lambda: (model, optimizer, average)


def with_scaler(is_narrow=True):
    model = Net()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=16.0)

    def step(x, y):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_narrow):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        return loss

    return step, rows, lambda: (model, optimizer, scaler.state_dict())


def with_accumulation():
    """Gradients of two batches, the first of them without communication."""
    model = Net()
    optimizer, log = torch.optim.AdamW(model.parameters(), lr=0.01), []

    @contextlib.contextmanager
    def no_sync():
        log.append("off")
        try:
            yield
        finally:
            log.append("on")

    def step(x, y, number):
        last = number % 2 == 1
        with contextlib.nullcontext() if last else no_sync():
            loss = F.cross_entropy(model(x), y) / 2
            loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    return step, lambda number: (*rows(number), number), lambda: (model, optimizer, log)


def with_two_models():
    """A GAN: one model is frozen while the other learns."""
    maker, judge = Net(), nn.Sequential(nn.Linear(5, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    first, second = sgd(judge), sgd(maker)

    def step(x, y):
        real, fake = F.one_hot(y, 5).float(), maker(x)
        loss = F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
        first.zero_grad()
        loss.backward()
        first.step()
        judge.requires_grad_(False)
        second.zero_grad()
        other = F.softplus(-judge(fake)).mean()
        other.backward()
        second.step()
        judge.requires_grad_(True)
        return loss, other

    return step, rows, lambda: (maker, judge, first, second)


def with_state_dict():
    """An average that is a dict, by the names of the model's state."""
    model = Net()
    optimizer = sgd(model)
    shadow = {k: x.clone() for k, x in model.state_dict().items()}

    def step(x, y):
        loss = take_step(model, optimizer, x, y)
        for name, value in model.state_dict().items():
            if value.dtype.is_floating_point:
                shadow[name] = 0.9 * shadow[name] + 0.1 * value
        return loss

    return step, rows, lambda: (model, optimizer, shadow)


def with_line_search():
    model = nn.Linear(6, 5)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)

    def step(x, y):
        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        return optimizer.step(closure)

    return step, lambda number: rows(0), lambda: model


@pytest.mark.slow
@pytest.mark.parametrize(("compiler", "is_narrow"), [("eager", True), ("program", False)])
def test_a_scaler_is_part_of_the_graph(compiler, is_narrow):
    captured = same_story(lambda: with_scaler(is_narrow), compiler=compiler)
    assert not captured.capture.breaks


PIECES = (
    with_averaged_model,
    with_accumulation,
    with_two_models,
    with_state_dict,
    with_line_search,
)


@pytest.mark.parametrize("make", PIECES)
def test_a_program_in_pieces_does_what_eager_does(make):
    same_story(make)


# -- averages over the state -----------------------------------------------------------------------


def test_an_average_of_the_state_dict():
    def make():
        model = Net()
        optimizer = sgd(model)
        average = {name: x.clone() for name, x in model.state_dict().items()}

        def step(x, y):
            loss = take_step(model, optimizer, x, y)
            for name, value in model.state_dict().items():
                if value.is_floating_point():
                    average[name].mul_(0.9).add_(value, alpha=0.1)
                else:
                    average[name].copy_(value)
            return loss

        return step, rows, lambda: (model, optimizer, average)

    assert not same_story(make).capture.breaks


def test_a_state_dict_that_is_returned():
    model = Net()
    captured = gh.optimize("eager")(lambda x: (model(x), model.state_dict()))
    for _ in range(3):
        state = captured(rows(1)[0])[1]
        assert state._metadata == model.state_dict()._metadata
        assert list(state) == list(model.state_dict())
        assert state["norm.running_mean"].data_ptr() == model.norm.running_mean.data_ptr()


# -- other libraries -------------------------------------------------------------------------------


def test_a_training_loop_of_timm():
    prepare_torchvision()  # which timm imports
    utils = pytest.importorskip("timm.utils")

    def make():
        model = Net()
        optimizer, average = sgd(model), utils.ModelEmaV2(model, decay=0.9)

        def step(x, y):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            utils.dispatch_clip_grad(model.parameters(), value=0.1, mode="agc")
            optimizer.step()
            average.update(model)
            return loss

        return step, rows, lambda: (model, optimizer, average.module)

    same_story(make)


def test_adapters_of_peft():
    peft = pytest.importorskip("peft")

    def make():
        config = peft.LoraConfig(r=2, target_modules=["first"], lora_dropout=0.1)
        model = peft.get_peft_model(Net(), config)
        optimizer = sgd(model)
        step = functools.partial(take_step, model, optimizer)
        return lambda x, y: step(x, y), rows, lambda: (model.state_dict(), optimizer)

    assert not same_story(make).capture.breaks


SMALL = {"vocab_size": 40, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DEEP = {"num_hidden_layers": 2, "num_attention_heads": 2}
TRANSFORMERS = {  # as their users make them: with caches, and losses that are told by labels
    "GPT2LMHeadModel": {"n_embd": 16, "n_layer": 2, "n_head": 2},
    "LlamaForCausalLM": {"hidden_size": 16, "intermediate_size": 24, **DEEP},
    "BertForSequenceClassification": {"hidden_size": 16, "intermediate_size": 24, **DEEP},
    "T5ForConditionalGeneration": {
        "d_model": 16,
        "d_ff": 24,
        "d_kv": 8,
        "num_layers": 2,
        "num_heads": 2,
        "decoder_start_token_id": 0,
    },
    "BartForConditionalGeneration": {
        "d_model": 16,
        "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 24,
        **dict.fromkeys(("encoder_layers", "decoder_layers"), 1),
        **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2),
    },
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_models_of_transformers_as_they_come(name):
    prepare_torchvision()
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, name.split("For")[0].removesuffix("LMHeadModel") + "Config")

    def make():
        torch.manual_seed(0)
        model = getattr(transformers, name)(config(**SMALL, **TRANSFORMERS[name])).eval()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

        def step(batch):
            optimizer.zero_grad()
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            return loss

        def batches(number):
            words = torch.randint(3, 40, (2, 7), generator=torch.Generator().manual_seed(number))
            labels = words[:, 0] % 2 if "Classification" in name else words.clone()
            data = {"input_ids": words, "attention_mask": torch.ones_like(words), "labels": labels}
            return (transformers.BatchEncoding(data),)

        return step, batches, lambda: (model.state_dict(), optimizer.state_dict())

    assert not same_story(make).capture.breaks
