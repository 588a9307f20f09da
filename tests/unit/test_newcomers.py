"""Wrong calls that newcomers make: each error says what was expected, what came, and the fix."""

import numpy as np
import pytest
from wrong_calls import check_refused

import glasshouse as gh
from glasshouse import data, metrics, nn, optim, speech
from glasshouse.nn import functional as F

NAMES = {
    "gh": gh,
    "nn": nn,
    "F": F,
    "optim": optim,
    "data": data,
    "metrics": metrics,
    "speech": speech,
    "x": gh.ones((4, 3)),
    "y": gh.asarray([0, 1, 2, 0]),
    "img": gh.ones((2, 3, 8, 8)),
    "Q": gh.ones((1, 1, 4, 2)),
    "ds": data.TensorDataset(np.zeros((6, 3), np.float32), np.zeros(6)),
    "m": nn.Linear(3, 3),
    "opt": lambda: optim.SGD(NAMES["m"].parameters(), lr=0.1),
}

TABLE = {
    "nn.Linear(3, 2)()": (gh.DTypeError, "Missing a required argument: 'inpu"),
    "nn.Linear(3, 2)(x, x)": (gh.DTypeError, "Too many positional arguments."),
    "nn.Linear(3, 2)(inputs=x)": (gh.DTypeError, "Missing a required argument: 'inpu"),
    "nn.Transformer(16, 4, 1, 1)(gh.ones((5, 2, 16)))": (
        gh.DTypeError,
        "Missing a required argument:",
    ),
    "nn.TransformerDecoderLayer(16, 4)(gh.ones((5, 2, 16)))": (
        gh.DTypeError,
        "Missing a required argument:",
    ),
    "nn.MultiheadAttention(8, 2)(gh.ones((5, 2, 8)))": (
        gh.DTypeError,
        "Missing a required argument: 'key'",
    ),
    "nn.LSTM(3, 5)()": (gh.DTypeError, "Missing a required argument: 'inpu"),
    "nn.Bilinear(3, 3, 2)(x)": (gh.DTypeError, "Missing a required argument: 'inpu"),
    "nn.Sequential([nn.Linear(2, 2)])": (gh.DTypeError, "got [Linear("),
    "nn.Sequential(nn.Linear(2, 2), F.relu)": (gh.DTypeError, "got <function relu"),
    "nn.Sequential(nn.Linear(3, 2), nn.ReLU)": (
        gh.DTypeError,
        "got <class 'glasshouse.nn.ReLU'> (",
    ),
    "nn.Sequential(nn.Linear(3, 2))(x, x)": (gh.DTypeError, "Too many positional arguments."),
    "nn.ModuleList(nn.Linear(2, 2))": (gh.DTypeError, "got glasshouse.nn.linear.Linear. P"),
    "nn.Linear(3.0, 2)": (gh.OptionError, "got 3.0. Change in_features."),
    'nn.Linear("3", 2)': (gh.OptionError, "got '3'. Change in_features."),
    "nn.Linear(0, 2)": (gh.OptionError, "got 0. Change in_features."),
    "nn.LayerNorm(8)(gh.ones((2, 4)))": (gh.ShapeError, "got (2, 4). Set normalized_shape t"),
    "nn.BatchNorm2d(4)(img)": (gh.ShapeError, "got (2, 3, 8, 8). Change num_featu"),
    "nn.BatchNorm1d(3)(img)": (gh.ShapeError, "got (2, 3, 8, 8). Reshape it."),
    "nn.Conv2d(3, 8, 3)(gh.ones((2, 8, 8, 3)))": (
        gh.ShapeError,
        "got input (2, 8, 8, 3). Change in_",
    ),
    "nn.Conv2d(3, 8, 3)([1, 2])": (gh.DTypeError, "got int64 (2,). Convert it with in"),
    "nn.Conv2d(3, 8, 30)(img)": (gh.ShapeError, "got input (8, 8), kernel (30, 30),"),
    "nn.Linear(3, 2)([1, 2, 3])": (gh.DTypeError, "got int64 (3,). Convert it with in"),
    'nn.Linear(3, 2)("abc")': (gh.DTypeError, "got str 'abc'. Convert it to numbe"),
    "nn.Linear(3, 2)(None)": (gh.DTypeError, "got NoneType 'None'. Convert it to"),
    'm.train("no")': (gh.OptionError, "got 'no'. Pass a bool."),
    'm.to("float")': (gh.DeviceError, "got 'float'. Leave it out"),
    'm.to("gpu")': (gh.DeviceError, "got 'gpu'. Leave it out, or w"),
    "m.cuda()": (gh.DeviceError, "got 'cuda'. Leave it out"),
    "x.cuda()": (gh.DeviceError, "got 'cuda'. Leave it out"),
    'x.to("cuda")': (gh.DeviceError, "got 'cuda'. Leave it out"),
    'x.to("cuda:0")': (gh.DeviceError, "got 'cuda:0'. Leave it out"),
    'm.to("cuda")': (gh.DeviceError, "got 'cuda'. Leave it out"),
    'gh.zeros(3, device="cuda")': (gh.DeviceError, "got 'cuda'. Leave it out"),
    'gh.tensor([1.0], device="gpu")': (gh.DeviceError, "got 'gpu'. Leave it out"),
    'm.load_state_dict("file.pt")': (gh.DTypeError, "got str. Pass what state_dict() re"),
    "m.load_state_dict(m)": (gh.DTypeError, "got glasshouse.nn.linear.Linear. P"),
    "F.dropout(x, 2)": (gh.OptionError, "got 2. Change p."),
    'F.relu("x")': (gh.DTypeError, "got str 'x'. Convert it to numbers"),
    "F.pad(x, 1)": (gh.DTypeError, "got int. Pass e.g. (1, 1)."),
    "F.one_hot(x)": (gh.DTypeError, "got float32 (4, 3). Use .long()."),
    "F.nll_loss(x, x)": (gh.DTypeError, "got float32 (4, 3). Convert the ta"),
    "nn.CrossEntropyLoss()(x)": (gh.DTypeError, "Missing a required argument: 'targ"),
    "nn.CrossEntropyLoss(x, y)": (gh.DTypeError, "Too many positional arguments."),
    "nn.MSELoss(x, x)": (gh.DTypeError, "Too many positional arguments."),
    'nn.MSELoss(reduction="avg")': (gh.OptionError, "got 'avg'. Choose one of: mean, no"),
    "nn.L1Loss()(x, x, x)": (gh.DTypeError, "Too many positional arguments."),
    "nn.CTCLoss()(x, y)": (gh.DTypeError, "Missing a required argument: 'inpu"),
    "F.cross_entropy(x, x[0])": (gh.DTypeError, "got float32 (3,). Convert the targ"),
    "F.flex_attention(Q, Q, Q, score_mod=lambda s: s)": (gh.DTypeError, "got one of (s)"),
    "F.flex_attention(Q, Q, Q, score_mod=lambda s, b, h, i, j, k: s)": (
        gh.DTypeError,
        "got one of (s, b, h, i, j, k)",
    ),
    "F.create_block_mask(lambda q, k: q >= k, 1, 1, 4, 4)": (gh.DTypeError, "got one of (q, k)"),
    "optim.Adam(m.parameters)": (gh.DTypeError, "got method. Pass model.parameters("),
    'optim.Adam(m.parameters(), "0.1")': (gh.OptionError, "got '0.1'. Check its scale and sig"),
    "optim.SGD(m.state_dict(), lr=0.1)": (gh.DTypeError, "got dict. Pass model.parameters()"),
    "optim.SGD([m], lr=0.1)": (gh.DTypeError, "got glasshouse.nn.linear.Linear at"),
    "optim.SGD(m.weight.numpy(), lr=0.1)": (gh.DTypeError, "got numpy.ndarray at 0. Pass the t"),
    "opt().step(x.sum())": (gh.DTypeError, "got Tensor("),
    "optim.lr_scheduler.StepLR(m, 3)": (gh.DTypeError, "got glasshouse.nn.linear.Linear. P"),
    'optim.lr_scheduler.CosineAnnealingLR(opt(), "10")': (gh.OptionError, "got '10'. Pass e.g. 1."),
    'data.DataLoader(ds, "4")': (gh.OptionError, "got '4'. Pass e.g. 1."),
    "data.DataLoader(ds, 0)": (gh.OptionError, "got 0. Pass e.g. 1."),
    "data.DataLoader(ds, 2, num_workers=-1)": (gh.OptionError, "got -1. Pass e.g. 1."),
    'data.DataLoader(ds, 2, num_workers="2")': (gh.OptionError, "got '2'. Pass e.g. 1."),
    "data.DataLoader(ds, 2, collate_fn=3)": (gh.DTypeError, "got 3. Pass a callable."),
    "data.DataLoader(ds, 2, sampler=3)": (gh.DTypeError, "got int. Pass e.g. a list."),
    "data.DataLoader(3)": (gh.DTypeError, "got int. Make a list of it first."),
    "data.DataLoader(None, 4)": (gh.DTypeError, "got NoneType. Make a list of it fi"),
    "data.TensorDataset()": (gh.ShapeError, "got shapes none. Give one entry pe"),
    "data.TensorDataset([1, 2], [3, 4, 5])": (gh.ShapeError, "got shapes (2,), (3,). Give one en"),
    "data.TensorDataset(5)": (gh.ShapeError, "got shapes (). Give one entry per"),
    "ds[100]": (gh.IndexOutOfRangeError, "got 100. The data set has 6 sample"),
    'ds["a"]': (gh.DTypeError, "got 'a' (str). Use span(start, sto"),
    "data.Subset(ds, [100])[0]": (gh.IndexOutOfRangeError, "got 100. The data set has 6 sample"),
    "data.Subset(ds, 3)": (gh.DTypeError, "got int64 of shape (). Turn a mask"),
    "data.random_split(ds, [0.5, 0.6])": (gh.OptionError, "got [0.5, 0.6], which sum to 1.1."),
    "data.random_split(ds, [3, 4])": (gh.OptionError, "got [3, 4], which sum to 7. The da"),
    "data.random_split(ds, 0.5)": (gh.DTypeError, "got float. Pass e.g. [0.9, 0.1]."),
    "data.WeightedRandomSampler(3, 4)": (gh.ShapeError, "got (). Flatten them."),
    "metrics.Accuracy().update(x, [0, 1])": (gh.ShapeError, "got (4, 3) and (2,). Give one scor"),
    "metrics.F1()": (gh.OptionError, "got None. Pass e.g. 1."),
    'metrics.F1("macro")': (gh.OptionError, "got 'macro'. Pass e.g. 1."),
    'metrics.F1(3, average="mean")': (gh.OptionError, "got 'mean'. Choose one of: None, m"),
    "metrics.F1(3).update([0, 5], [0, 1])": (
        gh.IndexOutOfRangeError,
        "got 5. Set ignore_index for labels",
    ),
    "metrics.Precision()": (gh.OptionError, "got None. Pass e.g. 1."),
    "metrics.ConfusionMatrix()": (gh.OptionError, "got None. Pass e.g. 1."),
    "metrics.IoU()": (gh.OptionError, "got None. Pass e.g. 1."),
    'metrics.TopK("5")': (gh.OptionError, "got '5'. Pass e.g. 1."),
    'metrics.Average().update("a")': (gh.DTypeError, "got str 'a'. Convert it."),
    "metrics.Average().update(None)": (gh.DTypeError, "got NoneType 'None'. Convert it."),
    "metrics.Perplexity().update(x, x)": (gh.DTypeError, "got float32. Cast it."),
    'gh.fit(m, [(x, y)], F.cross_entropy, opt(), epochs="3")': (
        gh.OptionError,
        "got '3'. Pass e.g. 1.",
    ),
    "gh.fit(m, x, y, opt())": (gh.DTypeError, "got glasshouse.tensor.handle.Tenso"),
    "gh.fit(nn.Linear, [(x, y)], F.cross_entropy, opt())": (
        gh.DTypeError,
        "got type. Subclass nn.Module.",
    ),
    "gh.fit(m, [(x, y)], F.cross_entropy, opt(), metrics=metrics.Accuracy)": (
        gh.DTypeError,
        "got type. Pass e.g. metrics={'accu",
    ),
    "gh.fit(m, [(x, y)], F.cross_entropy, opt(), callbacks=print)": (
        gh.DTypeError,
        "got builtin_function_or_method. Pa",
    ),
    "gh.fit(m, [(x, y)], opt(), F.cross_entropy)": (
        gh.DTypeError,
        "got glasshouse.optim.rules.SGD. Pa",
    ),
    'gh.fit(m, [{"x": x, "y": y}], F.cross_entropy, opt())': (
        gh.ShapeError,
        "got dict. Map the data to such tup",
    ),
    "m.no_such": (AttributeError, "got 'no_such'. Choose one of: add_"),
    "nn.init.xavier_uniform_(gh.ones(3))": (gh.ShapeError, "got (3,). Use uniform_ or normal_"),
    'nn.init.normal_("w")': (gh.DTypeError, "got str. Pass a Parameter."),
    "m.register_forward_hook(3)": (gh.DTypeError, "got 3 (int). Pass a function."),
    "m.apply(3)": (gh.DTypeError, "got 3 (int). Pass a function."),
    "nn.utils.rnn.pad_sequence(x[0, 0])": (gh.ShapeError, "got a 0-d tensor. Pass a list of t"),
    "nn.utils.rnn.pad_sequence([])": (gh.OptionError, "got none. Pass a list of tensors."),
    "nn.GRU(3, 5, num_layers=0)": (gh.OptionError, "got 0. Change num_layers."),
    'nn.RNN(3, 5, "gelu")': (gh.OptionError, "got 'gelu'. Change num_layers."),
    "nn.GroupNorm(3, 8)": (gh.OptionError, "got num_channels=8 and num_groups="),
    'nn.Upsample(scale_factor=2, mode="bicubics")(img)': (
        gh.OptionError,
        "got 'bicubics'. Did you mean 'bicu",
    ),
    "nn.AdaptiveAvgPool2d()": (gh.DTypeError, "Missing a required argument: 'outp"),
    "nn.PixelShuffle(2)(img)": (gh.OptionError, "got channels=3 and upscale_factor²"),
    "nn.Unflatten(1, (2, 2))(x)": (gh.ShapeError, "got (4, 3). Change unflattened_siz"),
    'speech.LogMelSpectrogram("16k")': (gh.DTypeError, "got str"),
}


@pytest.mark.parametrize("call", TABLE)
def test_wrong_call(call):
    check_refused(lambda: eval(call, NAMES), *TABLE[call])


def test_an_error_inside_a_module_stays_what_it_is():
    class Broken(nn.Module):
        def forward(self, x):
            return len(3)

    with pytest.raises(TypeError, match="has no len"):
        Broken()(gh.ones(2))
