"""The targets of folders of C. `plain`: C without libraries and instructions of one processor.
`onednn`: the same with oneDNN's products and convolutions, and its own copies into its layouts,
which another processor may choose otherwise.

Fused kernels, windows, sorting, loops and scatters are those of the target `cpu`; matrix products
and convolutions are twins in plain C. Their sums depend on no option of the compiler and on no
processor, so a folder of C computes the same elsewhere, but for its mathematics' last bits."""

from glasshouse.compile.lowering.target import Target
from glasshouse.targets.cpu.fused import FusedLowerer
from glasshouse.targets.cpu.host import HostLowerer
from glasshouse.targets.cpu.kernels.along_axis import ExtremeKernels, RunningSumKernels, SortKernels
from glasshouse.targets.cpu.kernels.scatter import ScatterKernels
from glasshouse.targets.cpu.kernels.windows import WindowKernels
from glasshouse.targets.cpu.onednn.byte_products import OnednnBytes
from glasshouse.targets.cpu.onednn.convolutions import OnednnConvolutions
from glasshouse.targets.cpu.onednn.products import OnednnProducts
from glasshouse.targets.cpu.scan import LoopLowerer
from glasshouse.targets.cpu.target import CpuTarget
from glasshouse.targets.plain.convolutions import PlainConvolutions
from glasshouse.targets.plain.products import PlainBytes, PlainProducts

PLAIN = Target(
    "plain",
    [
        PlainBytes(),
        PlainProducts(),
        PlainConvolutions(),
        WindowKernels(),
        ScatterKernels(),
        ExtremeKernels(),
        RunningSumKernels(),
        SortKernels(),
        LoopLowerer(),
    ],
    fused=FusedLowerer(),
    host=HostLowerer(),
)
ONEDNN = CpuTarget(
    "onednn",
    [*(x(own_copies=False) for x in (OnednnBytes, OnednnProducts, OnednnConvolutions))]
    + [x for x in PLAIN.lowerers if x not in (PLAIN.fused, PLAIN.host)],
    fused=PLAIN.fused,
    host=PLAIN.host,
)
