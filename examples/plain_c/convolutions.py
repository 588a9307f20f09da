"""Convolutions of images and their gradients: one nest of loops, one statement for each of them."""

from glasshouse.targets import CKernel, Claim, EmittedStep, Lowerer
from plain_c.products import C_TYPES

KERNEL = """\
{pointers}for (int64_t i = 0; i < {size}; i++) {result}[i] = 0;
for (int64_t n = 0; n < {images}; n++)
for (int64_t o = 0; o < {outputs}; o++)
for (int64_t c = 0; c < {taken}; c++)
for (int64_t ky = 0; ky < {kernel[0]}; ky++)
for (int64_t kx = 0; kx < {kernel[1]}; kx++) {{
  const int64_t from = n * {channels} + o / ({outputs} / {groups}) * {taken} + c;
  const int64_t weight = ((o * {taken} + c) * {kernel[0]} + ky) * {kernel[1]} + kx;
  for (int64_t i = 0; i < {out[0]}; i++) {{
    const int64_t row = i * {stride[0]} + ky * {dilation[0]} - {top};
    if (row < 0 || row >= {data[0]}) continue;
    for (int64_t j = 0; j < {out[1]}; j++) {{
      const int64_t column = j * {stride[1]} + kx * {dilation[1]} - {left};
      if (column < 0 || column >= {data[1]}) continue;
      const int64_t to = ((n * {outputs} + o) * {out[0]} + i) * {out[1]} + j;
      const int64_t at = (from * {data[0]} + row) * {data[1]} + column;
      {statement}
    }}
  }}
}}
"""
# By primitive: its operands and result, of data x, weights w and results y; and what is added up.
ROLES = {
    "conv": ("xwy", "y[to] += x[at] * w[weight];"),
    "conv_data_grad": ("ywx", "x[at] += y[to] * w[weight];"),
    "conv_weight_grad": ("xyw", "w[weight] += x[at] * y[to];"),
}


class PlainConvolutions(Lowerer):
    """Convolutions over two axes, and the gradients of their data and weights."""

    ops = tuple(ROLES)
    label = "plain convolution"

    def claims(self, graph, node):
        fits = node.dtype in C_TYPES and node.spec.ndim == 4 and node.host is None
        return Claim([node]) if fits and node.spec.size else None

    def plan(self, lowering, claim):
        node = claim.last
        operands = [lowering.row_major(x) for x in node.inputs]
        target = lowering.buffer(node.spec, node=node)
        lowering.add_step(self, node, operands, [target])
        lowering.hand_out(node, [target])
        return True

    def emit(self, step):
        node, views = step.node, [*step.sources, step.results[0].view()]
        roles, statement = ROLES[node.op]
        shapes = dict(zip(roles, [view.shape for view in views], strict=True))
        kind = C_TYPES[node.dtype]
        (images, channels, *data), (out_channels, taken, *kernel) = shapes["x"], shapes["w"]
        attrs = node.attrs
        text = KERNEL.format(
            pointers="".join(f"{kind} *{name} = a[{i}];\n" for i, name in enumerate(roles)),
            result=roles[-1],
            statement=statement,
            size=node.spec.size,
            images=images,
            channels=channels,
            outputs=out_channels,
            taken=taken,
            groups=attrs["groups"],
            data=data,
            kernel=kernel,
            out=shapes["y"][2:],
            stride=attrs["stride"],
            dilation=attrs["dilation"],
            top=attrs["padding"][0][0],
            left=attrs["padding"][1][0],
        )
        return EmittedStep([(view.base, view.offset) for view in views], CKernel(text))
