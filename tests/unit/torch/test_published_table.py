"""ViT-B/16, eight images: its published table of ColossalAI's analyzer, cell by cell."""

import re
from collections import Counter

import pytest

import glasshouse as gh
from glasshouse.analyze.cost_table import colossal_count, colossal_size

torch = pytest.importorskip("torch")
nn = torch.nn

from glasshouse.torch.ahead.node_costs import separate_projections  # noqa: E402

# Source: README of ColossalAI's `_analyzer`, the table of `symbolic_profile`. Columns are those of
# a CostTable; zeros are "0 b" and "0 FLOPs". What is accumulated has a list of its own.
FIRST = """
placeholder x | 4.59 Mb | 0 | 4.59 Mb | 0 | 0 | 0 | 0 | 0
call_module conv_proj | 4.59 Mb | 0 | 0 | 4.59 Mb | 2.25 Mb | 4.59 Mb | 924.84 M | 924.84 M
call_method reshape | 4.59 Mb | 0 | 0 | 4.59 Mb | 0 | 4.59 Mb | 0 | 0
call_method permute | 4.59 Mb | 0 | 0 | 4.59 Mb | 0 | 4.59 Mb | 0 | 0
get_attr class_token | 4.59 Mb | 0 | 0 | 0 | 0 | 0 | 0 | 0
call_method expand | 4.59 Mb | 0 | 0 | 24.00 Kb | 3.00 Kb | 0 | 0 | 6.14 k
call_function cat | 4.59 Mb | 0 | 0 | 4.62 Mb | 0 | 0 | 0 | 0
get_attr encoder_pos_embedding | 4.59 Mb | 0 | 0 | 0 | 0 | 0 | 0 | 0
call_function add | 9.21 Mb | 4.62 Mb | 4.62 Mb | 0 | 591.00 Kb | 4.62 Mb | 1.21 M | 1.21 M
call_module encoder_dropout | 9.21 Mb | 0 | 4.62 Mb | 0 | 0 | 4.62 Mb | 0 | 0
"""
LAYER = """
call_module ln_1 | 4.63 Mb | 4.62 Mb | 0 | 6.00 Kb | 4.62 Mb | 6.05 M | 6.05 M
call_module self_attention | 32.68 Mb | 0 | 4.62 Mb | 9.01 Mb | 13.85 Mb | 4.20 G | 8.40 G
call_function getitem | 0 | 0 | 4.62 Mb | 0 | 0 | 0 | 0
call_function getitem | 0 | 0 | 0 | 0 | 0 | 0 | 0
call_module dropout | 0 | 0 | 4.62 Mb | 0 | 4.62 Mb | 0 | 0
call_function add | 4.62 Mb | 4.62 Mb | 0 | 0 | 9.23 Mb | 1.21 M | 0
call_module ln_2 | 12.31 Kb | 0 | 4.62 Mb | 6.00 Kb | 4.62 Mb | 6.05 M | 6.05 M
call_module mlp_0 | 23.09 Mb | 18.47 Mb | 0 | 9.01 Mb | 4.62 Mb | 3.72 G | 7.44 G
call_module mlp_1 | 18.47 Mb | 18.47 Mb | 0 | 0 | 18.47 Mb | 4.84 M | 4.84 M
call_module mlp_2 | 0 | 18.47 Mb | 0 | 0 | 18.47 Mb | 0 | 0
call_module mlp_3 | 0 | 0 | 4.62 Mb | 9.00 Mb | 18.47 Mb | 3.72 G | 7.44 G
call_module mlp_4 | 0 | 0 | 4.62 Mb | 0 | 4.62 Mb | 0 | 0
call_function add | 4.62 Mb | 4.62 Mb | 0 | 0 | 9.23 Mb | 1.21 M | 0
"""
FIRST_LAYER = {  # where the first layer differs
    "call_module ln_1": "12.31 Kb | 0 | 4.62 Mb | 6.00 Kb | 4.62 Mb | 6.05 M | 6.05 M",
    "call_module self_attention": "37.30 Mb | 0 | 4.62 Mb | 9.01 Mb | 13.85 Mb | 4.20 G | 8.40 G",
}
# After ln_1, self_attention, add, ln_2, mlp_0, mlp_1 and add: of each layer.
ACCUMULATED = """
9.22 46.52 51.14 51.15 74.24 92.71 97.32
101.95 134.63 139.25 139.26 162.35 180.82 185.43
190.06 222.74 227.36 227.37 250.46 268.93 273.54
278.17 310.86 315.47 315.48 338.57 357.04 361.66
366.29 398.97 403.58 403.60 426.68 445.15 449.77
454.40 487.08 491.70 491.71 514.79 533.26 537.88
542.51 575.19 579.81 579.82 602.90 621.37 625.99
630.62 663.30 667.92 667.93 691.02 709.48 714.10
718.73 751.41 756.03 756.04 779.13 797.60 802.21
806.84 839.52 844.14 844.15 867.24 885.71 890.32
894.95 927.63 932.25 932.26 955.35 973.82 978.44
983.06 1015.75 1020.36 1020.38 1.02Gb 1.04Gb 1.04Gb
"""
CHANGES = (0, 1, 1, 1, 1, 2, 3, 4, 5, 5, 5, 5, 6)  # which of them each row has
LAST = """
call_module encoder_ln | 1.04 Gb | 36.31 Kb | 24.00 Kb | 0 | 6.00 Kb | 4.62 Mb | 6.05 M | 6.05 M
call_function getitem | 1.04 Gb | 0 | 24.00 Kb | 0 | 0 | 4.62 Mb | 0 | 0
call_module heads_head | 1.04 Gb | 0 | 0 | 31.25 Kb | 2.93 Mb | 24.00 Kb | 6.14 M | 12.30 M
output output | 1.04 Gb | 0 | 0 | 31.25 Kb | 0 | 31.25 Kb | 0 | 0
"""
COLUMNS = (
    "accumulate",
    "incremental",
    "output",
    "temp",
    "param",
    "backward",
    "forward_flops",
    "backward_flops",
)
# How many cells differ, by row and column: the table's own doing, see docs/inside/analyze.md.
DIFFERING = {
    ("ln_1", "accumulate"): 11,
    ("ln_1", "incremental"): 11,
    ("ln_1", "output"): 11,
    ("ln_1", "temp"): 11,
    ("self_attention", "incremental"): 11,
    ("ln_2", "accumulate"): 12,
    ("ln_2", "incremental"): 12,
    ("ln_2", "output"): 12,
    ("ln_2", "temp"): 12,
    ("mlp_0", "incremental"): 12,
    ("expand", "temp"): 1,
    ("output", "temp"): 1,
    ("output", "backward"): 1,
}


def published() -> list[list[str]]:
    """The rows: operator and name without its layer, then eight cells."""
    rows = lines(FIRST)
    for number, text in enumerate(ACCUMULATED.strip().splitlines()):
        totals = [x.replace("Gb", " Gb") if "Gb" in x else f"{x} Mb" for x in text.split()]
        for change, (name, *cells) in zip(CHANGES, lines(LAYER), strict=True):
            if number == 0:
                cells = FIRST_LAYER.get(name, " | ".join(cells)).split(" | ")
            rows.append([name, totals[change], *cells])
    return rows + lines(LAST)


def lines(text: str) -> list[list[str]]:
    return [line.split(" | ") for line in text.strip().splitlines()]


class Layer(nn.Module):
    """A layer of torchvision's encoder."""

    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(768, 1e-6), nn.LayerNorm(768, 1e-6)
        self.self_attention = nn.MultiheadAttention(768, 12, batch_first=True)
        self.dropout = nn.Dropout(0.0)
        wide, narrow = nn.Linear(768, 3072), nn.Linear(3072, 768)
        self.mlp = nn.Sequential(wide, nn.GELU(), nn.Dropout(0.0), narrow, nn.Dropout(0.0))

    def forward(self, inputs):
        x = self.ln_1(inputs)
        x, _ = self.self_attention(x, x, x, need_weights=False)
        x = self.dropout(x) + inputs
        return x + self.mlp(self.ln_2(x))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, 197, 768))
        self.dropout, self.ln = nn.Dropout(0.0), nn.LayerNorm(768, 1e-6)
        self.layers = nn.Sequential()
        for i in range(12):
            self.layers.add_module(f"encoder_layer_{i}", Layer())

    def forward(self, x):
        return self.ln(self.layers(self.dropout(x + self.pos_embedding)))


class ViT(nn.Module):
    """ViT-B/16, with torchvision's names."""

    def __init__(self):
        super().__init__()
        self.conv_proj = nn.Conv2d(3, 768, 16, 16)
        self.class_token = nn.Parameter(torch.empty(1, 1, 768))
        self.encoder, self.heads = Encoder(), nn.Sequential()
        self.heads.add_module("head", nn.Linear(768, 1000))

    def forward(self, x):
        patches = self.conv_proj(x).reshape(x.shape[0], 768, -1).permute(0, 2, 1)
        tokens = torch.cat([self.class_token.expand(x.shape[0], -1, -1), patches], dim=1)
        return self.heads(self.encoder(tokens)[:, 0])


@pytest.fixture(scope="module")
def table():
    with torch.device("meta"):
        model = ViT()
    shape = ((8, 3, 224, 224), "float32")
    gm = gh.analyze.symbolic_trace(model, [shape])
    return gh.analyze.symbolic_profile(gm, shape, convention="colossal")


def shown(row, column: str) -> str:
    """A cell as it is printed, without the unit of zeros and of FLOPs."""
    if "flops" in column:
        return colossal_count(getattr(row, column)).removesuffix("FLOPs").strip()
    return colossal_size(getattr(row, column)).removesuffix(" b")


def name_of(row) -> str:
    """Operator and name of a row, without its layer and number."""
    name = re.sub(r"^encoder_layers_encoder_layer_\d+_|(?<=add|tem)_\d+$", "", row.name)
    return f"{row.op} {name}"


def test_cells_are_the_published_ones_but_those_that_are_the_tables_own_doing(table):
    rows = published()
    assert len(rows) == len(table) == 170
    differing = Counter()
    for (name, *cells), row in zip(rows, table, strict=True):
        assert name_of(row) == name
        for column, cell in zip(COLUMNS, cells, strict=True):
            differing[name.split()[1], column] += shown(row, column) != cell
    assert +differing == DIFFERING
    assert 8 * len(rows) - differing.total() == 1242


@pytest.mark.parametrize(("is_self", "bias"), [(True, True), (False, True), (False, False)])
def test_projections_as_they_were_composed_compute_what_they_do_now(is_self, bias):
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(8, 2, bias=bias)
    q, k, v = torch.randn(3, 5, 2, 8)
    for operands in [(q, q, q)] if is_self else [(q, k, k), (q, k, v)]:
        weights = attention.in_proj_weight, attention.in_proj_bias
        expected = nn.functional._in_projection_packed(*operands, *weights)
        for x, y in zip(separate_projections(*operands, *weights), expected, strict=True):
            torch.testing.assert_close(x, y)
