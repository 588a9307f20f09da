"""Mixed precision: products and convolutions in a 16-bit type, everything else as it comes.

Each card says its policy in `autocast`: "lower" means that float32 operands are cast down. Weights
stay float32, and since a cast is differentiable their gradients are float32 too."""

from contextlib import ContextDecorator
from typing import Any

from glasshouse.base import OptionError, as_dtype, bfloat16, float16, float32, having
from glasshouse.base.dtype import DType
from glasshouse.dispatch.bind import state
from glasshouse.dispatch.mode import KeyedMode
from glasshouse.dispatch.value import cast

KINDS = ("cpu", "cuda", "hip", "meta", "mps", "mtia", "xla", "xpu")  # of devices, PyTorch's


class autocast(KeyedMode, ContextDecorator):
    """Context and decorator inside which products and convolutions run in `dtype`. `enabled=False`
    switches an outer one off. The backward pass belongs outside: it runs in the types in which the
    forward pass ran.

    `autocast("float16")` names the dtype; `autocast("cuda", dtype="float16")`, as PyTorch's does,
    the kind of device too, whose dtype is float16 on "cuda" unless named, elsewhere bfloat16.

    Raises: OptionError for another dtype than bfloat16 and float16.
    Source: Micikevicius et al. 2018, arXiv:1710.03740.
    Example:
        >>> import glasshouse as gh
        >>> with autocast("bfloat16"):
        ...     (gh.ones((2, 3)) @ gh.ones((3, 2))).dtype
        glasshouse.bfloat16
    """

    def __init__(
        self,
        device_type: Any = "cpu",
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if (
            str(device_type).partition(":")[0] not in KINDS
        ):  # our spelling: autocast(dtype, enabled)
            enabled = enabled if dtype is None else dtype
            dtype = device_type
        elif dtype is None:
            dtype = float16 if str(device_type).startswith("cuda") else bfloat16
        self.dtype: DType = as_dtype(dtype)
        self.enabled: bool = bool(enabled)
        self.key: str = f"autocast {self.dtype.name}" if enabled else "no autocast"
        if self.dtype not in (bfloat16, float16):
            fix = "Other types need no autocast: cast the model with .to(dtype)."
            raise OptionError("autocast", "'bfloat16' or 'float16'", repr(self.dtype.name), fix)

    def process(self, primitive: Any, args: Any, attrs: dict[str, Any], below: Any) -> Any:
        """Cast the operands of a card whose policy is "lower"; pass on all others."""
        if not self.enabled:
            with use_autocast_modes(()):
                return below(primitive, args, attrs)
        if primitive.autocast == "lower" and all(x.dtype in (float32, self.dtype) for x in args):
            args = tuple(cast(x, self.dtype) for x in args)
        return below(primitive, args, attrs)

    def _recreate_cm(self):  # of ContextDecorator: each call has its own
        return autocast(self.dtype, self.enabled)


def autocast_modes() -> tuple[Any, ...]:
    return tuple(mode for mode in state.modes if isinstance(mode, autocast))


def use_autocast_modes(modes: tuple[Any, ...]) -> Any:
    """Inside, the autocasts on the stack are `modes`; for recomputation."""
    others = (mode for mode in state.modes if not isinstance(mode, autocast))
    return having(state, modes=(*others, *modes))


def is_autocast_enabled() -> bool:
    """Whether an autocast is in force here.

    Example:
        >>> is_autocast_enabled()
        False
    """
    modes = autocast_modes()
    return bool(modes) and modes[-1].enabled
