"""The target `cpu`: its lowerers in their order, and the settings of its kernels."""

from typing import Any

from glasshouse.base.flags import flags
from glasshouse.compile.lowering.target import DefaultTarget, Target
from glasshouse.targets.cpu.fused import FusedLowerer
from glasshouse.targets.cpu.host import HostLowerer
from glasshouse.targets.cpu.kernels.along_axis import ExtremeKernels, RunningSumKernels, SortKernels
from glasshouse.targets.cpu.kernels.amx import NarrowProducts
from glasshouse.targets.cpu.kernels.bf16x6 import SplitProducts
from glasshouse.targets.cpu.kernels.bf16x6_convolutions import SplitConvolutions
from glasshouse.targets.cpu.kernels.byte_products import ByteProducts
from glasshouse.targets.cpu.kernels.depthwise import DepthwiseConvolutions
from glasshouse.targets.cpu.kernels.double_products import DoubleProducts
from glasshouse.targets.cpu.kernels.few_rows import FewRowProducts
from glasshouse.targets.cpu.kernels.fixed_products import FixedProducts
from glasshouse.targets.cpu.kernels.fourier import FourierKernels
from glasshouse.targets.cpu.kernels.loop_products import LoopProducts
from glasshouse.targets.cpu.kernels.packed_products import PackedProducts
from glasshouse.targets.cpu.kernels.scatter import ScatterKernels
from glasshouse.targets.cpu.kernels.small_products import SmallProducts
from glasshouse.targets.cpu.kernels.weight_factors import factors_into_weights
from glasshouse.targets.cpu.kernels.weight_gradients import WeightGradients
from glasshouse.targets.cpu.kernels.widened_products import widened_products
from glasshouse.targets.cpu.kernels.windows import WindowKernels
from glasshouse.targets.cpu.kernels.winograd import WinogradConvolutions
from glasshouse.targets.cpu.onednn.byte_products import OnednnBytes
from glasshouse.targets.cpu.onednn.convolutions import OnednnConvolutions
from glasshouse.targets.cpu.onednn.products import OnednnProducts
from glasshouse.targets.cpu.onednn.symmetric_products import SymmetricProducts
from glasshouse.targets.cpu.scan import LoopLowerer
from glasshouse.targets.cpu.start_wait import CollectiveLowerer

ALGORITHMS = ("winograd", "bf16x6", "amx", "few_bits")  # that flags switch off


class CpuTarget(Target):
    """Kernels in C with OpenMP, oneDNN for products, memory of the process."""

    threads = 0  # that Programs are made for: where they are told apart by it

    def settings(self) -> tuple[Any, ...]:
        switched_off = (name for name in ALGORITHMS if not getattr(flags, name))
        fixed = (f"{flags.deterministic} deterministic",) if flags.deterministic else ()
        return (*(f"no {name}" for name in switched_off), *fixed)

    def variant(self) -> Any:
        usual = self is CPU and not self.settings()
        return None if usual else (*super().variant(), self.threads)


CPU = CpuTarget(
    "cpu",
    [
        WinogradConvolutions(),
        PackedProducts(),
        FixedProducts(),
        DoubleProducts(),
        SmallProducts(),
        SymmetricProducts(),
        ByteProducts(),
        OnednnBytes(),
        LoopProducts(),
        FewRowProducts(),
        SplitProducts(),
        NarrowProducts(),
        OnednnProducts(),
        SplitConvolutions(),
        DepthwiseConvolutions(),
        WeightGradients(),
        OnednnConvolutions(),
        WindowKernels(),
        ScatterKernels(),
        ExtremeKernels(),
        RunningSumKernels(),
        SortKernels(),
        FourierKernels(),
        LoopLowerer(),
        CollectiveLowerer(),
    ],
    fused=FusedLowerer(),
    host=HostLowerer(),
    passes=(factors_into_weights, widened_products),
)
DefaultTarget.target = CPU
