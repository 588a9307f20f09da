"""Learning-rate schedules against PyTorch's sequences; states; bad calls."""

import json
import math
import warnings

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.base.errors import CheckpointError, DTypeError, OptionError
from glasshouse.optim import (
    SGD,
    Adam,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
    OneCycleLR,
    ReduceLROnPlateau,
    RMSprop,
    SequentialLR,
    StepLR,
)
from glasshouse.optim import lr_scheduler as schedule


def make_optimizer(kind=SGD, **options):
    """Two groups: rates 0.5 and 0.05."""
    a, b = (gh.tensor([1.0], requires_grad=True) for _ in range(2))
    return kind([{"params": [a]}, {"params": [b], "lr": 0.05}], lr=0.5, **options)


def make_torch_optimizer(torch, kind=SGD, **options):
    a, b = (torch.ones(1, requires_grad=True) for _ in range(2))
    groups = [{"params": [a]}, {"params": [b], "lr": 0.05}]
    return getattr(torch.optim, kind.__name__)(groups, lr=0.5, **options)


def rates(opt, scheduler, steps=30):
    """The rates (and momenta) of all groups before each step."""
    log = []
    for _ in range(steps):
        log.append([(g["lr"], g.get("momentum"), g.get("betas")) for g in opt.param_groups])
        opt.step()
        scheduler.step()
    return log


def flat(rows):
    return [
        x for groups in rows for lr, m, betas in groups for x in (lr, m or 0, *(betas or (0, 0)))
    ]


def swa(ns, opt, *options):
    """SWALR, which PyTorch has elsewhere."""
    where = ns if hasattr(ns, "SWALR") else pytest.importorskip("torch").optim.swa_utils
    return where.SWALR(opt, *options)


SCHEDULES = [
    lambda ns, opt: ns.StepLR(opt, 4, 0.3),
    lambda ns, opt: ns.MultiStepLR(opt, [3, 3, 9], 0.5),
    lambda ns, opt: ns.ExponentialLR(opt, 0.9),
    lambda ns, opt: ns.LinearLR(opt),
    lambda ns, opt: ns.LinearLR(opt, 0.1, 0.7, 12),
    lambda ns, opt: ns.CosineAnnealingLR(opt, 8),
    lambda ns, opt: ns.CosineAnnealingLR(opt, 40, 0.01),
    lambda ns, opt: ns.CosineAnnealingLR(opt, 7, 0.01),
    lambda ns, opt: ns.LambdaLR(opt, lambda t: 1 / (1 + t)),
    lambda ns, opt: ns.MultiplicativeLR(opt, lambda t: 1 - 0.5 / (1 + t)),
    lambda ns, opt: ns.MultiplicativeLR(opt, [lambda t: 0.9, lambda t: 1.1]),
    lambda ns, opt: ns.ConstantLR(opt),
    lambda ns, opt: ns.ConstantLR(opt, 0.5, total_iters=7),
    lambda ns, opt: ns.PolynomialLR(opt, 12),
    lambda ns, opt: ns.PolynomialLR(opt, total_iters=20, power=2.0),
    lambda ns, opt: ns.CosineAnnealingWarmRestarts(opt, 4),
    lambda ns, opt: ns.CosineAnnealingWarmRestarts(opt, 3, 2, 0.01),
    lambda ns, opt: ns.CyclicLR(opt, 0.1, 0.6, 4, cycle_momentum=False),
    lambda ns, opt: ns.CyclicLR(opt, [0.1, 0.2], [0.6, 0.3], 3, 5, "triangular2"),
    lambda ns, opt: ns.CyclicLR(opt, 0.1, 0.6, 4, mode="exp_range", gamma=0.95),
    lambda ns, opt: ns.CyclicLR(opt, 0.1, 0.6, 4, scale_fn=lambda x: 1 / x),
    lambda ns, opt: ns.CyclicLR(
        opt, 0.1, 0.6, 4, scale_fn=lambda x: 0.9**x, scale_mode="iterations", max_momentum=0.7
    ),
    lambda ns, opt: swa(ns, opt, 0.02),
    lambda ns, opt: swa(ns, opt, [0.02, 0.6], 7, "linear"),
    lambda ns, opt: swa(ns, opt, 0.02, 0),
    lambda ns, opt: ns.ChainedScheduler([ns.ConstantLR(opt, 0.1, 3), ns.ExponentialLR(opt, 0.9)]),
    lambda ns, opt: ns.ChainedScheduler([ns.LinearLR(opt), ns.StepLR(opt, 4)], optimizer=opt),
    lambda ns, opt: ns.LambdaLR(opt, [lambda t: 0.9**t, lambda t: 1 + t]),
    lambda ns, opt: ns.OneCycleLR(opt, 0.4, total_steps=30),
    lambda ns, opt: ns.OneCycleLR(opt, [0.4, 0.2], epochs=5, steps_per_epoch=8, pct_start=0.25),
    lambda ns, opt: ns.OneCycleLR(opt, 0.4, 30, anneal_strategy="linear", three_phase=True),
    lambda ns, opt: ns.OneCycleLR(opt, 0.4, 31, div_factor=5, final_div_factor=7.5),
    lambda ns, opt: ns.OneCycleLR(opt, 0.4, 33, base_momentum=0.7, max_momentum=0.8),
    lambda ns, opt: ns.SequentialLR(
        opt, [ns.LinearLR(opt, 0.2, total_iters=5), ns.CosineAnnealingLR(opt, 25)], [5]
    ),
    lambda ns, opt: ns.SequentialLR(
        opt,
        [ns.LinearLR(opt, 0.5, total_iters=3), ns.ExponentialLR(opt, 0.9), ns.StepLR(opt, 2, 0.5)],
        [4, 11],
    ),
]


@pytest.mark.parametrize("kind", [SGD, Adam, RMSprop])
@pytest.mark.parametrize("number", range(len(SCHEDULES)))
def test_sequences_equal_pytorchs(number, kind):
    torch = pytest.importorskip("torch")
    opt, torch_opt = make_optimizer(kind), make_torch_optimizer(torch, kind)
    ours = rates(opt, SCHEDULES[number](schedule, opt))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own SequentialLR steps before the optimizer
        theirs = rates(torch_opt, SCHEDULES[number](torch.optim.lr_scheduler, torch_opt))
    np.testing.assert_allclose(flat(ours), flat(theirs), rtol=1e-9, atol=1e-12)


CHAINS = [
    lambda ns, opt: [ns.ExponentialLR(opt, 0.9), ns.MultiStepLR(opt, [3, 8], 0.5)],
    lambda ns, opt: [ns.LinearLR(opt, 0.1, total_iters=6), ns.ExponentialLR(opt, 0.9)],
    lambda ns, opt: [ns.StepLR(opt, 3, 0.5), ns.LinearLR(opt, 0.5)],
]


@pytest.mark.parametrize("number", range(len(CHAINS)))
def test_several_schedules_multiply_like_pytorchs(number):
    torch = pytest.importorskip("torch")

    def run(ns, opt):
        chain = CHAINS[number](ns, opt)
        log = []
        for _ in range(12):
            log.append([group["lr"] for group in opt.param_groups])
            opt.step()
            for part in chain:
                part.step()
        return log

    ours = run(schedule, make_optimizer())
    theirs = run(torch.optim.lr_scheduler, make_torch_optimizer(torch))
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_a_rate_changed_by_hand_lasts_as_a_factor():
    opt = make_optimizer()
    scheduler = ExponentialLR(opt, 0.5)
    scheduler.step()
    opt.param_groups[0]["lr"] /= 10
    scheduler.step()
    assert scheduler.get_last_lr() == pytest.approx([0.0125, 0.0125])


METRICS = [5, 4, 4, 4, 4, 3.9999, 3.9998, 3, math.nan, 3, 3, 3, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2]


@pytest.mark.parametrize(
    "options",
    [
        {"patience": 1},
        {"patience": 2, "cooldown": 2, "factor": 0.5},
        {"mode": "max", "patience": 3, "threshold": 0.1, "threshold_mode": "abs"},
        {"patience": 0, "min_lr": [0.1, 0.01]},
        {"patience": 1, "threshold_mode": "abs", "threshold": 0.5, "eps": 0.01},
    ],
)
def test_plateau_equals_pytorchs(options):
    torch = pytest.importorskip("torch")
    opt, torch_opt = make_optimizer(), make_torch_optimizer(torch)
    ours = ReduceLROnPlateau(opt, **options)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(torch_opt, **options)
    for metric in METRICS:
        ours.step(metric)
        theirs.step(metric)
        np.testing.assert_allclose(ours.get_last_lr(), theirs.get_last_lr(), rtol=1e-12)


@pytest.mark.parametrize("number", range(len(SCHEDULES)))
def test_a_state_loaded_from_json_goes_on_exactly(number):
    opt = make_optimizer()
    scheduler = SCHEDULES[number](schedule, opt)
    rates(opt, scheduler, 7)
    saved = json.loads(json.dumps([scheduler.state_dict(), opt.state_dict()]))
    other = make_optimizer()
    resumed = SCHEDULES[number](schedule, other)
    resumed.load_state_dict(saved[0])
    assert resumed.get_last_lr() == [group["lr"] for group in other.param_groups]
    other.load_state_dict(saved[1])
    assert rates(other, resumed, 20) == rates(opt, scheduler, 20)


@pytest.mark.quick
def test_plateau_state_goes_on_exactly():
    opt, other = make_optimizer(), make_optimizer()
    scheduler = ReduceLROnPlateau(opt, patience=1, cooldown=1)
    resumed = ReduceLROnPlateau(other, patience=1, cooldown=1)
    resumed.load_state_dict(json.loads(json.dumps(scheduler.state_dict())))
    for metric in METRICS[:9]:
        scheduler.step(metric)
    resumed.load_state_dict(json.loads(json.dumps(scheduler.state_dict())))
    for metric in METRICS[9:]:
        scheduler.step(metric)
        resumed.step(metric)
        assert resumed.get_last_lr() == scheduler.get_last_lr()


@pytest.mark.parametrize("state", [3, {}, {"last_epoch": 1}, None])
def test_a_state_that_does_not_fit_changes_nothing(state):
    opt = make_optimizer()
    scheduler = StepLR(opt, 2)
    before = scheduler.state_dict()
    with pytest.raises(CheckpointError, match="StepLR"):
        scheduler.load_state_dict(state)
    with pytest.raises(CheckpointError):
        scheduler.load_state_dict({**before, "base_lrs": [1.0]})
    with pytest.raises(CheckpointError):
        scheduler.load_state_dict({**before, "last_lr": ["a", "b"]})
    with pytest.raises(CheckpointError):
        scheduler.load_state_dict({**before, "last_epoch": None})
    assert scheduler.state_dict() == before


@pytest.mark.parametrize("number", range(len(SCHEDULES)))
def test_a_state_of_pytorchs_schedule_goes_on(number):
    torch = pytest.importorskip("torch")
    opt, torch_opt = make_optimizer(), make_torch_optimizer(torch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = SCHEDULES[number](torch.optim.lr_scheduler, torch_opt)
        rates(torch_opt, theirs, 7)
        ours = SCHEDULES[number](schedule, opt)
        ours.load_state_dict(theirs.state_dict())
        for group, other in zip(opt.param_groups, torch_opt.param_groups, strict=True):
            group["momentum"] = other["momentum"]
        expected = flat(rates(torch_opt, theirs, 20))
    got = flat(rates(opt, ours, 20))
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("done", [0, 1, 7])
@pytest.mark.parametrize(
    "options", [{"patience": 1}, {"mode": "max", "patience": 0, "cooldown": 2, "threshold": 0.1}]
)
def test_a_state_of_pytorchs_plateau_goes_on(options, done):
    torch = pytest.importorskip("torch")
    opt, torch_opt = make_optimizer(), make_torch_optimizer(torch)
    ours = ReduceLROnPlateau(opt, **options)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(torch_opt, **options)
    metrics = [*METRICS, *METRICS][: 20 + done]
    for metric in metrics[:done]:
        theirs.step(metric)
    ours.load_state_dict(theirs.state_dict())
    for metric in metrics[done:]:
        ours.step(metric)
        theirs.step(metric)
        np.testing.assert_allclose(ours.get_last_lr(), theirs.get_last_lr(), rtol=1e-12)


def test_restarts_take_fractions_of_an_epoch():
    torch = pytest.importorskip("torch")
    opt, torch_opt = make_optimizer(), make_torch_optimizer(torch)
    ours = schedule.CosineAnnealingWarmRestarts(opt, 2, 3)
    theirs = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(torch_opt, 2, 3)
    for i in range(30):
        ours.step(i / 3)
        theirs.step(i / 3)
        np.testing.assert_allclose(ours.get_last_lr(), theirs.get_last_lr(), rtol=1e-9)


def test_swalr_starts_from_the_rate_that_it_finds():
    torch = pytest.importorskip("torch")
    opt, torch_opt = make_optimizer(), make_torch_optimizer(torch)
    log = []
    for own, ns in ((opt, schedule), (torch_opt, torch.optim.lr_scheduler)):
        first, second = ns.ExponentialLR(own, 0.5), swa(ns, own, 0.3, 4)
        log.append([])
        for step in range(12):
            own.step()
            (first if step < 4 else second).step()
            log[-1].append([group["lr"] for group in own.param_groups])
    np.testing.assert_allclose(*log, rtol=1e-9)


@pytest.mark.parametrize(
    "make",
    [
        lambda ns, opt, at: ns.StepLR(opt, 4, 0.3, last_epoch=at),
        lambda ns, opt, at: ns.CosineAnnealingLR(opt, 8, last_epoch=at),
        lambda ns, opt, at: ns.CyclicLR(opt, 0.1, 0.6, 4, cycle_momentum=False, last_epoch=at),
        lambda ns, opt, at: ns.OneCycleLR(opt, 0.4, 31, cycle_momentum=False, last_epoch=at),
    ],
)
def test_a_schedule_made_with_last_epoch_goes_on(make):
    opt = make_optimizer()
    rates(opt, make(schedule, opt, -1), 6)
    other = make_optimizer()
    other.load_state_dict(opt.state_dict())
    resumed = make(schedule, other, 5)
    straight = make_optimizer()
    expected = rates(straight, make(schedule, straight, -1), 16)
    np.testing.assert_allclose(flat(rates(other, resumed, 10)), flat(expected[6:]), rtol=1e-12)


class Halving(LRScheduler):
    """A schedule of a user's in PyTorch's manner."""

    def get_lr(self):
        factor = 0.5 if self.last_epoch else 1.0
        return [group["lr"] * factor for group in self.optimizer.param_groups]


def test_a_schedule_of_pytorchs_manner_works():
    opt = make_optimizer()
    assert rates(opt, Halving(opt), 3)[-1][0][0] == 0.125


@pytest.mark.quick
def test_warmup_then_inverse_square_root():
    opt = make_optimizer()
    log = [groups[0][0] for groups in rates(opt, gh.optim.InverseSqrtLR(opt, 4), 17)]
    expected = [0.5 * min(t / 4, (4 / t) ** 0.5) if t else 0.0 for t in range(17)]
    np.testing.assert_allclose(log, expected, rtol=1e-12)


def test_warmup_then_cosine_equals_a_sequence_of_both():
    opt, other = make_optimizer(), make_optimizer()
    parts = [
        LambdaLR(other, lambda t: t / 5),
        CosineAnnealingLR(other, 15, eta_min=0.01),
    ]
    both = SequentialLR(other, parts, [5])
    ours = rates(opt, gh.optim.WarmupCosineLR(opt, 5, 20, 0.01), 20)
    np.testing.assert_allclose(flat(ours), flat(rates(other, both, 20)), rtol=1e-12)
    assert opt.param_groups[0]["lr"] == pytest.approx(0.01)


def test_repr():
    assert repr(StepLR(make_optimizer(), 2)) == "StepLR(step 0, lr [0.5, 0.05])"


def sequential(*milestones, other=None):
    opt = make_optimizer()
    parts = [StepLR(opt, 2), StepLR(other or opt, 3)]
    return SequentialLR(opt, parts, list(milestones))


def too_many_steps():
    scheduler = OneCycleLR(make_optimizer(), 0.1, total_steps=3)
    for _ in range(4):
        scheduler.step()


def late_group():
    opt = make_optimizer()
    scheduler = StepLR(opt, 2)
    opt.add_param_group({"params": [gh.tensor([1.0], requires_grad=True)]})
    scheduler.step()


def plateau_part():
    opt = make_optimizer()
    SequentialLR(opt, [ReduceLROnPlateau(opt), StepLR(opt, 1)], [1])


def make_adagrad():
    return gh.optim.Adagrad([gh.tensor([1.0], requires_grad=True)])


OPT = make_optimizer()
BAD_CALLS = [
    (lambda: StepLR("sgd", 2), DTypeError, "expected an optimizer; got str"),
    (lambda: StepLR(OPT, 0), OptionError, "step_size to be an integer >= 1; got 0"),
    (lambda: StepLR(OPT, 2.5), OptionError, "got 2.5"),
    (lambda: StepLR(OPT, 2, -0.1), OptionError, "gamma"),
    (lambda: MultiStepLR(OPT, [-1]), OptionError, "milestones"),
    (lambda: ExponentialLR(OPT, "x"), OptionError, "gamma"),
    (lambda: ExponentialLR(OPT, math.nan), OptionError, "gamma"),
    (lambda: LinearLR(OPT, 0), OptionError, "start_factor > 0"),
    (lambda: LinearLR(OPT, 2), OptionError, "start_factor"),
    (lambda: LinearLR(OPT, total_iters=0), OptionError, "total_iters"),
    (lambda: CosineAnnealingLR(OPT, 0), OptionError, "T_max"),
    (lambda: LambdaLR(OPT, 3), DTypeError, "functions of the step"),
    (lambda: LambdaLR(OPT, [abs]), OptionError, "each of 2 parameter groups; got 1"),
    (lambda: OneCycleLR(OPT, 0.1), OptionError, "total_steps, or epochs"),
    (lambda: OneCycleLR(OPT, 0.1, 0), OptionError, "total_steps"),
    (lambda: OneCycleLR(OPT, 0.1, 5, pct_start=1.5), OptionError, "pct_start"),
    (lambda: OneCycleLR(OPT, 0.1, 5, anneal_strategy="cso"), OptionError, "Did you mean 'cos'"),
    (lambda: OneCycleLR(OPT, [0.1], 5), OptionError, "max_lr"),
    (lambda: OneCycleLR(make_adagrad(), 0.1, 5), OptionError, "momentum or betas; got Adagrad"),
    (too_many_steps, OptionError, "at most total_steps = 3"),
    (late_group, OptionError, "2 parameter groups"),
    (lambda: sequential(), OptionError, "1 rising milestones"),
    (lambda: sequential(0), OptionError, "milestones"),
    (lambda: sequential(1, 2), OptionError, "1 rising"),
    (lambda: sequential(2, other=make_optimizer()), OptionError, "its own optimizer"),
    (plateau_part, OptionError, "schedules of the step alone"),
    (lambda: ReduceLROnPlateau(OPT, mode="mim"), OptionError, "Did you mean 'min'"),
    (lambda: ReduceLROnPlateau(OPT, factor=1.0), OptionError, "factor"),
    (lambda: ReduceLROnPlateau(OPT, patience=-1), OptionError, "patience"),
    (lambda: ReduceLROnPlateau(OPT, min_lr=[0.1]), OptionError, "min_lr"),
    (lambda: LRScheduler(OPT), NotImplementedError, "lr_at"),
    (lambda: StepLR(OPT, 2, last_epoch=-2), OptionError, "last_epoch"),
    (lambda: StepLR(make_optimizer(), 2, last_epoch=3), OptionError, "initial_lr in group 0"),
    (lambda: schedule.ConstantLR(OPT, 2.0), OptionError, "factor"),
    (lambda: schedule.PolynomialLR(OPT, 0), OptionError, "total_iters"),
    (lambda: schedule.MultiplicativeLR(OPT, 0.9), DTypeError, "functions of the step"),
    (lambda: schedule.CosineAnnealingWarmRestarts(OPT, 0), OptionError, "T_0"),
    (lambda: schedule.CosineAnnealingWarmRestarts(OPT, 2, 0.5), OptionError, "T_mult"),
    (lambda: schedule.CyclicLR(OPT, 0.1, 0.5, mode="triangle"), OptionError, "'triangular'"),
    (lambda: schedule.CyclicLR(OPT, 0.1, [0.5]), OptionError, "max_lr"),
    (lambda: schedule.CyclicLR(OPT, 0.1, 0.5, scale_fn=3), DTypeError, "scale_fn"),
    (lambda: schedule.CyclicLR(make_adagrad(), 0.1, 0.5), OptionError, "momentum or betas"),
    (lambda: schedule.SWALR(OPT, 0.1, anneal_strategy="cosine"), OptionError, "'cos'"),
    (lambda: schedule.SWALR(OPT, 0.1, -1), OptionError, "anneal_epochs"),
    (lambda: schedule.ChainedScheduler([]), OptionError, "at least one"),
    (lambda: schedule.ChainedScheduler([ReduceLROnPlateau(OPT)]), OptionError, "step alone"),
    (lambda: schedule.WarmupCosineLR(OPT, 5, 5), OptionError, "total_steps"),
    (lambda: schedule.InverseSqrtLR(OPT, 0), OptionError, "warmup_steps"),
]


@pytest.mark.parametrize("number", range(len(BAD_CALLS)))
def test_bad_calls(number):
    call, error, text = BAD_CALLS[number]
    with pytest.raises(error, match=text):
        call()
