"""The target `cpu`: kernels in C with OpenMP, products and convolutions through oneDNN."""

from glasshouse.targets.cpu.along_axis import ExtremeKernels, RunningSumKernels, SortKernels
from glasshouse.targets.cpu.depthwise import DepthwiseConvolutions
from glasshouse.targets.cpu.fused import FusedLowerer
from glasshouse.targets.cpu.host import HostLowerer
from glasshouse.targets.cpu.onednn_convolutions import OnednnConvolutions
from glasshouse.targets.cpu.onednn_products import OnednnProducts
from glasshouse.targets.cpu.scatter import ScatterKernels
from glasshouse.targets.cpu.target import CPU
from glasshouse.targets.cpu.weight_gradients import WeightGradients
from glasshouse.targets.cpu.windows import WindowKernels
from glasshouse.targets.cpu.winograd import WinogradConvolutions
