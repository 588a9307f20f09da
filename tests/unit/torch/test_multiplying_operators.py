"""Of PyTorch's own lists of operators, all that multiply matrices are counted, or are known to be
listed as not counted."""

import re
from math import prod

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("expecttest")  # PyTorch's samples need it

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402

import glasshouse as gh  # noqa: E402
from glasshouse.torch.aten.table import TABLE  # noqa: E402
from glasshouse.torch.formulas import FORMULAS  # noqa: E402
from glasshouse.torch.observe.operator_cost import Operator, is_list_form, lookup_name  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

# -- every schema -----------------------------------------------------------------------------

PRODUCT = re.compile(r"mm(_|$)|conv(\d|_|o)|attention|linear|lstm|gru|rnn|matmul|(^|_)v?dot$|^mv$")
# Names that are like a product's: resampling, activations, moving and packing of weights.
OTHERS = re.compile(
    "upsample|prepack|unpack|reorder|quantize_per|nonlinear|flatten_weight|cell_params"
    "|linear_combination|pack_gemm|make_quantized|_conv_.*_params|_search$|convert"
)
# Counters list these: they run elsewhere than on CPUs, or on what only their library can read.
LISTED = re.compile(
    "mps|triton|_cslt_|semi_structured|mixed_dtypes|dyn_quant|int4pack_mm(_with|$)|int4mm_packed|symm_mem"
    "|::_(flash|efficient|cudnn)_attention|miopen_rnn"
    "|_attention.quantized|nnpack|_slow_conv2d_backward|mkldnn_linear_backward_"
    "|thnn_fused|_foreach_mm_native|_scaled_grouped_mm_v2|inductor::"  # cells: no products
    "|^_quantized::|^sparse::|^mkldnn_prepacked::|quantized_(lstm|gru|rnn)|_cell_dynamic"
    "|linear_with_input|onednn::linear|onednn::.*(binary|qconv1d|qconv3d|qconv2d_pointwise.tensor)"
    "|_sparse_sparse_matmul|_sparse_mm_reduce_impl_backward|::quantized_"
)


def products() -> list[str]:
    """The names of all overloads that have a product's name."""
    names = []
    for whole in torch._C._dispatch_get_all_op_names():
        name, _, form = whole.partition(".")
        own = name.partition("::")[2]
        if PRODUCT.search(own) and not OTHERS.search(own) and not form.endswith("out"):
            names.append(whole)
    return sorted(names)


def overload_of(whole: str):
    name, _, form = whole.partition(".")
    namespace, _, own = name.partition("::")
    return getattr(getattr(getattr(torch.ops, namespace), own), form or "default")


def has_cost(overload) -> bool:
    """Whether an operator has a formula, dense or sparse, or is made of operators that have."""
    name = lookup_name(overload)
    if name in FORMULAS or name in TABLE or f"sparse {name}" in FORMULAS or is_list_form(overload):
        return True
    decomposed = overload in torch._decomp.decomposition_table
    return decomposed or Operator(overload).composite or overload._can_decompose()


def test_every_product_has_a_cost_or_is_known_to_be_listed():
    names = products()
    assert len(names) > 200
    unknown = [x for x in names if not LISTED.search(x) and not has_cost(overload_of(x))]
    assert unknown == []


# -- every sample, counted by hand -------------------------------------------------------------


def of_matmul(a, b, *_, **__):
    rows = a.shape[-2] if a.ndim > 1 else 1
    columns = b.shape[-1] if b.ndim > 1 else 1
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return 2 * prod(batch) * rows * a.shape[-1] * columns


def of_sum_and_product(x, a, b, **_):
    return of_matmul(a, b)


def of_linear(x, w, *_, **__):
    return 2 * x.numel() * prod(w.shape[:-1])


def of_convolution(x, w, *args, **options):
    out = torch.nn.functional.__dict__[f"conv{w.ndim - 2}d"](x, w, *args, **options)
    return 2 * out.numel() * prod(w.shape[1:])


def of_transposed_convolution(x, w, bias=None, stride=1, padding=0, output_padding=0, *_, **__):
    """None where the result is padded by a stride or more: zeros are put beside x, and count."""
    pairs = zip(
        *(part if isinstance(part, tuple) else (part,) for part in (output_padding, stride))
    )
    return None if any(a >= b for a, b in pairs) else 2 * x.numel() * prod(w.shape[1:])


def of_bilinear(x, y, w, *_, **__):
    return 2 * prod(x.shape[:-1]) * w.numel()


def of_attention(q, k, v, *_, **__):
    batch = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])
    return 2 * prod(batch) * q.shape[-2] * k.shape[-2] * (q.shape[-1] + v.shape[-1])


def of_several(matrices, *_, **__):
    """The least work of all orders."""
    sizes = [1 if matrices[0].ndim == 1 else matrices[0].shape[0]]
    sizes += [m.shape[0] if m.ndim == 1 else m.shape[-1] for m in matrices[:-1]]
    sizes += [1 if matrices[-1].ndim == 1 else matrices[-1].shape[-1]]
    if matrices[0].ndim == 1:
        sizes[1] = matrices[0].shape[0]
    least = {(i, i): 0 for i in range(len(sizes))}
    count = len(sizes) - 1
    for length in range(2, count + 1):
        for i in range(count - length + 1):
            j = i + length - 1
            least[i, j] = min(
                least.get((i, k), 0)
                + least.get((k + 1, j), 0)
                + 2 * sizes[i] * sizes[k + 1] * sizes[j + 1]
                for k in range(i, j)
            )
    return least[0, count - 1]


BY_HAND = {
    "mm": of_matmul,
    "bmm": of_matmul,
    "mv": of_matmul,
    "matmul": of_matmul,
    "__rmatmul__": lambda a, b: of_matmul(b, a),
    "dot": of_matmul,
    "vdot": of_matmul,
    "addmm": of_sum_and_product,
    "addmv": of_sum_and_product,
    "baddbmm": of_sum_and_product,
    "addbmm": of_sum_and_product,
    "nn.functional.linear": of_linear,
    "nn.functional.bilinear": of_bilinear,
    "nn.functional.conv1d": of_convolution,
    "nn.functional.conv2d": of_convolution,
    "nn.functional.conv3d": of_convolution,
    "nn.functional.conv_transpose1d": of_transposed_convolution,
    "nn.functional.conv_transpose2d": of_transposed_convolution,
    "nn.functional.conv_transpose3d": of_transposed_convolution,
    "nn.functional.scaled_dot_product_attention": of_attention,
    "linalg.multi_dot": of_several,
    "sparse.sampled_addmm": lambda x, a, b, **_: 2 * x._nnz() * a.shape[-1],
    "sparse.mm": lambda a, b, *_: 2 * a._nnz() * b.shape[-1],
}
SAMPLES = [op for op in op_db if op.name in BY_HAND]


@pytest.mark.parametrize("op", SAMPLES, ids=lambda op: f"{op.name} {op.variant_test_name}")
def test_samples_count_as_by_hand(op):
    for sample in op.sample_inputs("cpu", torch.float32):
        args = sample.input, *sample.args
        with gh.FlopCounter() as counter:
            op(*args, **sample.kwargs)
        expected = BY_HAND[op.name](*args, **sample.kwargs)
        assert expected is None or counter.total() == expected, sample


def test_gradients_of_bilinear_count_as_by_hand():
    layer = torch.nn.Bilinear(3, 4, 5)
    x, y = torch.ones(2, 3, requires_grad=True), torch.ones(2, 4, requires_grad=True)
    with gh.FlopCounter() as counter:
        layer(x, y).sum().backward()
    each = 2 * 2 * 3 * 4 * 5
    assert counter.by_phase() == {"backward": 3 * each, "forward": each}


# -- operands that are no matrices of numbers ---------------------------------------------------

IDENTITY, DENSE = torch.eye(4), torch.ones(4, 7)
SPARSE = {
    "coo": lambda: IDENTITY.to_sparse() @ DENSE,
    "csr": lambda: IDENTITY.to_sparse_csr() @ DENSE,
    "on the right": lambda: DENSE.t() @ IDENTITY.to_sparse_csr(),
    "sparse.mm": lambda: torch.sparse.mm(IDENTITY.to_sparse(), DENSE),
    "sparse.addmm": lambda: torch.sparse.addmm(DENSE, IDENTITY.to_sparse(), DENSE),
    "hspmm": lambda: torch.hspmm(IDENTITY.to_sparse(), DENSE),
}


@pytest.mark.parametrize("call", SPARSE.values(), ids=SPARSE)
def test_stored_elements_count(call):
    for _ in range(2):
        with gh.FlopCounter() as counter:
            call()
        assert counter.total() == 2 * 4 * 7


def test_how_many_elements_are_stored_is_asked_each_time():
    for matrix in (torch.eye(4), torch.ones(4, 4), torch.zeros(4, 4)):
        with gh.FlopCounter() as counter:
            matrix.to_sparse() @ DENSE
        assert counter.total() == 2 * int(matrix.sum()) * 7


def test_products_of_two_sparse_matrices_are_listed():
    with gh.FlopCounter() as counter:
        torch.sparse.mm(IDENTITY.to_sparse(), IDENTITY.to_sparse())
    assert counter.total() == 0 and "aten::_sparse_sparse_matmul" in counter.uncounted()


def quantised(*shape, kind=torch.qint8):
    return torch.quantize_per_tensor(torch.ones(shape), 0.1, 0, kind)


def test_packed_weights_count_by_their_own_shape():
    x, ops = quantised(3, 4, kind=torch.quint8), torch.ops.quantized
    for width in (6, 8):
        packed = ops.linear_prepack(quantised(width, 4), torch.zeros(width))
        with gh.FlopCounter() as counter:
            ops.linear(x, packed, 0.1, 0)
        assert counter.total() == 2 * 3 * 4 * width
    packed = ops.conv2d_prepack(quantised(6, 3, 3, 3), torch.zeros(6), [2, 2], [0, 0], [1, 1], 1)
    with gh.FlopCounter() as counter:
        ops.conv2d.new(quantised(1, 3, 9, 9, kind=torch.quint8), packed, 0.1, 0)
    assert counter.total() == 2 * 6 * 16 * 27
