"""Wrong calls of gh.optim, gh.fit and interop: each error says what was expected, what came, and
the fix."""

import numpy as np
import pytest
from wrong_calls import check_refused

import glasshouse as gh
from glasshouse import interop, metrics, nn, optim
from glasshouse.fit import Checkpoint, CSVLog, EarlyStopping, TensorBoard
from glasshouse.nn import functional as F

X = gh.ones((3, 4))
BATCHES = [(X, gh.ones((3, 1)))]


def leaf():
    return gh.tensor([1.0, 2.0], requires_grad=True)


def fit(data=BATCHES, loss=F.mse_loss, model=None, optimizer=None, **options):
    model = model or nn.Linear(4, 1)
    optimizer = optimizer or optim.SGD(model.parameters(), 0.1)
    return gh.fit(model, data, loss, optimizer, **options)


NAMES = {
    "gh": gh,
    "np": np,
    "nn": nn,
    "optim": optim,
    "metrics": metrics,
    "interop": interop,
    "Checkpoint": Checkpoint,
    "CSVLog": CSVLog,
    "EarlyStopping": EarlyStopping,
    "TensorBoard": TensorBoard,
    "leaf": leaf,
    "fit": fit,
    "BATCHES": BATCHES,
    "X": X,
    "V": gh.ones(3),
}

TABLE = {
    # optimizers
    "optim.SGD(leaf(), lr=0.1)": (gh.DTypeError, "got glasshouse.tensor.handle.T"),
    "optim.SGD([leaf()], lr='0.1')": (gh.OptionError, "got '0.1'"),
    "optim.SGD([leaf()], lr=float('nan'))": (gh.OptionError, "got nan"),
    "optim.SGD([leaf()], lr=0.1, momentum=-1)": (gh.OptionError, "got -1"),
    "optim.SGD([leaf()], lr=0.1, momentum='a')": (gh.OptionError, "got 'a'"),
    "optim.SGD([leaf()], lr=0.1, weight_decay=-1)": (gh.OptionError, "got -1"),
    "optim.SGD([{'params': [leaf()], 'lr': -1}], lr=0.1)": (gh.OptionError, "got -1"),
    "optim.SGD([{'param': [leaf()]}], lr=0.1)": (gh.OptionError, "got a dict with ['param']"),
    "optim.SGD([{'params': [leaf()], 'mometum': 1}], lr=0.1)": (gh.OptionError, "got 'mometum'"),
    "optim.SGD([{'params': leaf(), 'lr': 0.1}, 3], lr=0.1)": (gh.OptionError, "got int"),
    "optim.SGD(None, lr=0.1)": (gh.DTypeError, "got NoneType"),
    "optim.SGD(nn.Linear(2, 2), lr=0.1)": (gh.DTypeError, "got glasshouse.nn.linear.Linea"),
    "(lambda p: optim.SGD([p, p], lr=0.1))(leaf())": (gh.OptionError, "got the one at 1 (sh"),
    "optim.Adam([leaf()], betas=0.9)": (gh.OptionError, "got 0.9"),
    "optim.Adam([leaf()], betas=(0.9,))": (gh.OptionError, "got (0.9,)"),
    "optim.Adam([leaf()], betas=(0.9, 1.0))": (gh.OptionError, "got (0.9, 1.0)"),
    "optim.Adam([leaf()], eps=-1)": (gh.OptionError, "got -1"),
    "optim.Adam([leaf()], lr=None)": (gh.OptionError, "got None"),
    "optim.AdamW([leaf()], weight_decay='x')": (gh.OptionError, "got 'x'"),
    "optim.RMSprop([leaf()], alpha=2)": (gh.OptionError, "got 2"),
    "optim.Adagrad([leaf()], lr_decay=-1)": (gh.OptionError, "got -1"),
    "optim.Adadelta([leaf()], rho=2)": (gh.OptionError, "got 2"),
    "optim.Adamax([leaf()], eps=-1)": (gh.OptionError, "got -1"),
    "optim.NAdam([leaf()], momentum_decay=-1)": (gh.OptionError, "got -1"),
    "optim.RAdam([leaf()], betas=(0, 2))": (gh.OptionError, "got (0, 2)"),
    "optim.Rprop([leaf()], etas=(2, 1))": (gh.OptionError, "got (2.0, 1.0)"),
    "optim.ASGD([leaf()], lambd='a')": (gh.OptionError, "got 'a'"),
    "optim.LBFGS([leaf()], line_search_fn='wolfe')": (gh.OptionError, "got 'wolfe'"),
    "optim.LBFGS([leaf()], max_iter=0)": (gh.OptionError, "got 0"),
    "optim.LBFGS([leaf(), leaf()]).step()": (gh.DTypeError, "got NoneType"),
    "optim.LBFGS([{'params': [leaf()]}, {'params': [leaf()]}])": (gh.OptionError, "got a second"),
    "optim.SparseAdam([leaf()], lr=-1)": (gh.OptionError, "got -1"),
    "optim.Lion([leaf()], betas=(2, 0))": (gh.OptionError, "got (2, 0)"),
    "optim.LAMB([leaf()], eps=-1)": (gh.OptionError, "got -1"),
    "optim.LARS([leaf()], lr=0.1, trust_coefficient=-1)": (gh.OptionError, "got -1"),
    "optim.Adafactor([leaf()], beta2_decay=1)": (gh.OptionError, "got 1"),
    "optim.Muon([leaf()])": (gh.ShapeError, "got shape (2,)"),
    "optim.Shampoo([leaf()], update_every=0)": (gh.OptionError, "got 0"),
    "optim.NovoGrad([leaf()], betas=(1, 1))": (gh.OptionError, "got (1, 1)"),
    "optim.Adam([leaf()]).load_state_dict({})": (gh.CheckpointError, "got a dict with []"),
    "optim.Adam([leaf()]).load_state_dict(3)": (gh.CheckpointError, "got int"),
    "optim.Adam([leaf()]).add_param_group(3)": (gh.OptionError, "got int"),
    "optim.Adam([leaf()]).add_param_group({})": (gh.OptionError, "got a dict with []"),
    "optim.Adam([leaf()]).step(closure=3)": (gh.DTypeError, "got 3 (int)"),
    "optim.StepLR(optim.SGD([leaf()], lr=0.1), step_size=1.5)": (gh.OptionError, "got 1.5"),
    "optim.StepLR(optim.SGD([leaf()], lr=0.1), 1, gamma='a')": (gh.OptionError, "got 'a'"),
    "optim.MultiStepLR(optim.SGD([leaf()], lr=0.1), 3)": (gh.DTypeError, "got int"),
    "optim.CosineAnnealingLR(optim.SGD([leaf()], lr=0.1), 0)": (gh.OptionError, "got 0"),
    "optim.LambdaLR(optim.SGD([leaf()], lr=0.1), 3)": (gh.DTypeError, "got 3"),
    "optim.LambdaLR(optim.SGD([leaf()], lr=0.1), [abs, abs])": (gh.OptionError, "got 2"),
    "optim.OneCycleLR(optim.SGD([leaf()], lr=0.1), 0.1)": (gh.OptionError, "got epochs=None, ste"),
    "optim.OneCycleLR(optim.SGD([leaf()], lr=0.1), 0.1, total_steps=0)": (gh.OptionError, "got 0"),
    "optim.ReduceLROnPlateau(optim.SGD([leaf()], lr=0.1), mode='up')": (gh.OptionError, "got 'up'"),
    "optim.ReduceLROnPlateau(optim.SGD([leaf()], lr=0.1), factor=2)": (gh.OptionError, "got 2"),
    "optim.ReduceLROnPlateau(optim.SGD([leaf()], lr=0.1)).step('a')": (gh.DTypeError, "got 'a'"),
    "optim.PolynomialLR(optim.SGD([leaf()], lr=0.1), total_iters=-1)": (gh.OptionError, "got -1"),
    "optim.ConstantLR(optim.SGD([leaf()], lr=0.1), factor=2)": (gh.OptionError, "got 2"),
    "optim.LinearLR(optim.SGD([leaf()], lr=0.1), start_factor=0)": (gh.OptionError, "got 0"),
    "optim.ExponentialLR(optim.SGD([leaf()], lr=0.1), gamma=None)": (gh.OptionError, "got None"),
    "optim.SequentialLR(optim.SGD([leaf()], lr=0.1), [], [])": (gh.OptionError, "got []"),
    "optim.ChainedScheduler([])": (gh.OptionError, "got none"),
    "optim.CosineAnnealingWarmRestarts(optim.SGD([leaf()], lr=0.1), 0)": (gh.OptionError, "got 0"),
    "optim.WarmupCosineLR(optim.SGD([leaf()], lr=0.1), 5, 3)": (gh.OptionError, "got 3"),
    "optim.InverseSqrtLR(optim.SGD([leaf()], lr=0.1), 0)": (gh.OptionError, "got 0"),
    "optim.StepLR(optim.SGD([leaf()], lr=0.1), 1, last_epoch=3)": (gh.OptionError, "got a group"),
    "optim.GradScaler(init_scale=-1)": (gh.OptionError, "got -1, 2.0, 0.5"),
    "optim.GradScaler().load_state_dict({})": (gh.CheckpointError, "got {}"),
    "optim.Lookahead(optim.SGD([leaf()], lr=0.1), k=0)": (gh.OptionError, "got 0"),
    "optim.Lookahead(3)": (gh.DTypeError, "got int"),
    "optim.GradientAccumulation(optim.SGD([leaf()], lr=0.1), 0)": (gh.OptionError, "got 0"),
    "optim.swa_utils.AveragedModel(3)": (gh.DTypeError, "got int"),
    "optim.swa_utils.SWALR(optim.SGD([leaf()], lr=0.1), swa_lr=-1)": (gh.OptionError, "got -1"),
    "optim.swa_utils.update_bn([gh.ones(2)], 3)": (gh.DTypeError, "got int"),
    "optim.swa_utils.get_ema_multi_avg_fn(2)": (gh.OptionError, "got 2"),
    "optim.layerwise_groups(3, 0.1, 0.9)": (gh.DTypeError, "got int"),
    "optim.layerwise_groups(nn.Linear(2, 2), 0.1, -1)": (gh.OptionError, "got -1"),
    "optim.clip_grad_norm_(3, 1.0)": (gh.DTypeError, "got int"),
    "optim.clip_grad_norm_([leaf()], 'a')": (gh.OptionError, "got max_norm='a', norm_type=2."),
    "optim.clip_grad_norm_([leaf()], 1.0, norm_type='x')": (gh.OptionError, "got max_norm=1.0, no"),
    "optim.clip_grad_value_([leaf()], -1)": (gh.OptionError, "got -1"),
    "optim.clip_grad_value_([leaf()], None)": (gh.OptionError, "got None"),
    # training
    "fit(model=3, optimizer=optim.SGD([leaf()], 0.1))": (gh.DTypeError, "got int"),
    "fit(data=3)": (gh.DTypeError, "got int"),
    "fit(data=iter(BATCHES))": (gh.DTypeError, "list_iterator"),
    "fit(data=[])": (gh.ShapeError, "at least one batch"),
    "fit(data=[X])": (gh.ShapeError, "(*inputs, target)"),
    "fit(data=[(X,)])": (gh.ShapeError, "tuple of 1"),
    "fit(data=[(X, 'a')])": (gh.DTypeError, "got str"),
    "fit(data=[(X, np.ones((3, 1)))])": (gh.DTypeError, "numpy.ndarray"),
    "fit(loss='mse')": (gh.DTypeError, "got str"),
    "fit(loss=nn.MSELoss)": (gh.DTypeError, "the class MSELoss"),
    "fit(loss=lambda scores, target: 3.0)": (gh.DTypeError, "not its item()"),
    "fit(loss=lambda scores, target: scores)": (gh.GradError, "(3, 1)"),
    "fit(optimizer=optim.SGD)": (gh.DTypeError, "got type"),
    "fit(optimizer=optim.SGD([leaf()], 0.1))": (gh.OptionError, "one of others"),
    "fit(metrics=3)": (gh.DTypeError, "got int"),
    "fit(metrics={'a': 3})": (gh.DTypeError, "'a'"),
    "fit(metrics=metrics.R2)": (gh.DTypeError, "got type"),
    "fit(metrics=[metrics.R2(), metrics.R2()])": (gh.OptionError, "['R2', 'R2']"),
    "fit(metrics={'loss': metrics.R2()})": (gh.OptionError, "'loss'"),
    "fit(metrics=metrics.Accuracy())": (gh.DTypeError, "float32"),
    "fit(callbacks=3)": (gh.DTypeError, "got int"),
    "fit(callbacks=[3])": (gh.DTypeError, "got int"),
    "fit(callbacks=EarlyStopping('val_lsos'))": (gh.OptionError, "'val_lsos'"),
    "fit(callbacks=Checkpoint('/proc/x'))": (gh.CheckpointError, "/proc/x"),
    "fit(callbacks=CSVLog('/proc/x/y.csv'))": (gh.CheckpointError, "/proc/x"),
    "fit(epochs=-1)": (gh.OptionError, "got -1"),
    "fit(validation=3)": (gh.DTypeError, "got int"),
    "fit(validation=[])": (gh.ShapeError, "batch of validation"),
    "fit(schedule=3)": (gh.DTypeError, "got int"),
    "fit(schedule=optim.StepLR(optim.SGD([leaf()], 0.1), 1))": (gh.OptionError, "one of another"),
    "fit(schedule_every='batch')": (gh.OptionError, "'batch'"),
    "fit(clip_norm=-1)": (gh.OptionError, "got -1"),
    "fit(clip_value='a')": (gh.OptionError, "'a'"),
    "fit(accumulate=0)": (gh.OptionError, "got 0"),
    "fit(autocast='int8')": (gh.OptionError, "'int8'"),
    "fit(resume=3)": (gh.DTypeError, "got 3 (int)"),
    "fit(resume='/no/such.safetensors')": (gh.CheckpointError, "/no/such"),
    "EarlyStopping(patience=0)": (gh.OptionError, "got 0"),
    "EarlyStopping(mode='low')": (gh.OptionError, "'low'"),
    "EarlyStopping(min_delta='a')": (gh.OptionError, "'a'"),
    "Checkpoint(3)": (gh.DTypeError, "got 3 (int)"),
    "Checkpoint('a', every=0)": (gh.OptionError, "got 0"),
    "CSVLog(3)": (gh.DTypeError, "got 3 (int)"),
    "TensorBoard(3)": (gh.DTypeError, "got 3 (int)"),
    "TensorBoard('a', every=0)": (gh.OptionError, "got 0"),
    # files and other libraries
    "interop.load_safetensors(3)": (gh.DTypeError, "got 3 (int)"),
    "interop.save_safetensors('/no/such/x', {'a': V})": (gh.CheckpointError, "got [Errno 2"),
    "interop.open_safetensors('/no/such')": (gh.CheckpointError, "got [Errno 2] No such file or"),
    "interop.open_safetensors(3)": (gh.DTypeError, "got 3 (int)"),
    "interop.load_checkpoint(3)": (gh.DTypeError, "got 3 (int)"),
    "nn.Linear(2, 2).load_state_dict(3)": (gh.DTypeError, "got int"),
    "nn.Linear(2, 2).load_state_dict(None)": (gh.DTypeError, "got NoneType"),
    "nn.Linear(2, 2).load_state_dict([1, 2])": (gh.DTypeError, "got list"),
}


@pytest.mark.parametrize("call", TABLE)
def test_wrong_call(call):
    check_refused(lambda: eval(call, NAMES), *TABLE[call])
