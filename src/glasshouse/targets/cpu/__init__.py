"""The target `cpu`: kernels in C with OpenMP, products and convolutions through oneDNN.

`target` has its lowerers in order; `fused`, `scan`, `start_wait` and `host` are the general ones,
the rooms `onednn` and `kernels` those for certain cards, with C functions in `headers`. Nodes of a
graph enter, steps leave. Read `target`, then `host` and `fused`, then `onednn`."""

from glasshouse.targets.cpu.kernels.along_axis import ExtremeKernels, RunningSumKernels, SortKernels
from glasshouse.targets.cpu.kernels.depthwise import DepthwiseConvolutions
from glasshouse.targets.cpu.fused import FusedLowerer
from glasshouse.targets.cpu.host import HostLowerer
from glasshouse.targets.cpu.onednn.convolutions import OnednnConvolutions
from glasshouse.targets.cpu.onednn.products import OnednnProducts
from glasshouse.targets.cpu.kernels.scatter import ScatterKernels
from glasshouse.targets.cpu.target import CPU
from glasshouse.targets.cpu.kernels.weight_gradients import WeightGradients
from glasshouse.targets.cpu.kernels.windows import WindowKernels
from glasshouse.targets.cpu.kernels.winograd import WinogradConvolutions
