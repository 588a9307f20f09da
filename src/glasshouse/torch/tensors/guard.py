"""The C extension of guards on tensors: finds the offsets that it reads, and tests it."""

import ctypes
import functools
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from glasshouse.base.flags import flags
from glasshouse.compile.building import toolchain
from glasshouse.torch.patches.names import are_found
from glasshouse.torch.patches.tensors import (
    hooks_of_accumulation,
    hooks_of_gradient,
    negative_view,
    tensor_address,
)
from glasshouse.torch.tensors.access import TENSOR_BYTES, extension, find_parts, words_at

SOURCE = Path(__file__).parent / "tensor_guard.c"
META_BYTES = 160  # of autograd's metadata that are searched


@functools.cache
def native() -> Any:
    """The extension, set up with the offsets of a tensor's parts; None where it does not compile,
    or the parts are not found."""
    try:
        access = extension()
        parts: Any = None if access is None else find_parts(access)
        with torch.inference_mode(False), torch.enable_grad():
            gradients = None if parts is None else find_gradient_parts()
            hooks = find_hooks()
        if gradients is None or hooks is None:
            return None
        module = toolchain.extension(SOURCE)
    except toolchain.CompileError as error:
        if flags.debug:
            print(f"[gh] capture: tensors are compared by Python: {error}")
        return None
    module.set_parts(parts.impl, parts.sizes, parts.dtype, parts.key_set, *gradients, *hooks)
    with torch.inference_mode(False), torch.enable_grad():
        return module if is_right(module) else None


def find_gradient_parts() -> tuple[int, int, int] | None:
    """The offsets of a tensor's autograd metadata, and in that of requires_grad and the graph's
    node; None where one of them is not found exactly once."""
    plain = torch.empty(3)
    before = words_at(tensor_address(plain), TENSOR_BYTES)
    plain.requires_grad_()
    after = words_at(tensor_address(plain), TENSOR_BYTES)
    places = [i for i, (a, b) in enumerate(zip(before, after)) if a == 0 and b > 0xFFFF]
    if len(places) != 1:
        return None
    meta = after[places[0]]
    flips = [bytes_at(meta)]
    for flag in (False, True, False):
        plain.requires_grad_(flag)
        flips.append(bytes_at(meta))
    flags_at = [i for i, values in enumerate(zip(*flips)) if values == (1, 0, 1, 0)]
    leaves = [torch.empty(2, requires_grad=True) for _ in range(3)]
    leaves[0].sum().backward()
    inner = [leaves[0] * 2, leaves[1].split(1)[1], leaves[2].sum()]
    rows = [
        words_at(words_at(tensor_address(t), TENSOR_BYTES)[places[0]], META_BYTES) for t in leaves
    ]
    others = [
        words_at(words_at(tensor_address(t), TENSOR_BYTES)[places[0]], META_BYTES) for t in inner
    ]
    nodes = [
        i
        for i in range(META_BYTES // 8)
        if not any(row[i] for row in rows) and all(row[i] > 0xFFFF for row in others)
    ]
    if len(flags_at) != 1 or len(nodes) != 1:
        return None
    return places[0] * 8, flags_at[0], nodes[0] * 8


def find_hooks() -> tuple[int, int] | None:
    """The offsets in a tensor's object of its hooks, and of those that run after its gradient is
    accumulated; None where they are not found."""
    if not are_found(hooks_of_gradient, hooks_of_accumulation):
        return None
    size = torch.Tensor.__basicsize__
    without, x = (torch.empty(2, requires_grad=True) for _ in range(2))
    x.register_hook(torch.neg)
    x.register_post_accumulate_grad_hook(torch.neg)
    tables = id(hooks_of_gradient(x)), id(hooks_of_accumulation(x))
    plain, hooked = words_at(id(without), size), words_at(id(x), size)
    if any(hooked.count(table) != 1 for table in tables):
        return None
    places = [hooked.index(table) for table in tables]
    return None if any(plain[i] for i in places) else (places[0] * 8, places[1] * 8)


def bytes_at(address: int) -> list[int]:
    return list((ctypes.c_uint8 * META_BYTES).from_address(address))


def samples() -> list[torch.Tensor]:
    """Tensors that all differ for a guard."""
    x = torch.empty(3, 4, dtype=torch.float32)
    leaf = torch.empty(3, 4, dtype=torch.float32, requires_grad=True)
    with torch.inference_mode():
        inference = torch.empty(3, 4)
    return [
        x,
        x.double(),
        x.half(),
        x.t(),
        torch.empty(4, 3),
        torch.empty(3, 4, 1),
        torch.empty(2, 1, 3, 1, 2, 2),
        torch.empty(2, 1, 3, 1, 2, 3),
        torch.empty(()),
        leaf,
        leaf * 2,
        torch.nn.Parameter(x),
        torch.nn.Parameter(x, requires_grad=False),
        torch.empty(3, 4, device="meta"),
        negative_view(x),
        inference,
        x.to(torch.complex64).conj(),
    ]


def is_right(module: ModuleType) -> bool:
    """Whether a guard holds for its tensor, and for no other sample."""
    tensors = samples()
    guards = [module.TensorGuard(x) for x in tensors]
    return all(
        module.holds(guard, x) is (i == k)
        for i, guard in enumerate(guards)
        for k, x in enumerate(tensors)
    ) and follows_hooks(module, guards[9], leaf_like(tensors[9]))


def follows_hooks(module: ModuleType, guard: Any, leaf: torch.Tensor) -> bool:
    """Whether the guard of a leaf holds for this one with any hooks, until hooks are forbidden."""
    right = [module.holds(guard, leaf)]
    early = leaf.register_hook(torch.neg)
    right.append(module.holds(guard, leaf))
    guard.forbid_hooks()
    right.append(not module.holds(guard, leaf))
    early.remove()
    right.append(module.holds(guard, leaf))
    late = leaf.register_post_accumulate_grad_hook(torch.neg)
    right.append(not module.holds(guard, leaf))
    late.remove()
    return all([*right, module.holds(guard, leaf)])


def leaf_like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.ones_like(tensor).requires_grad_()
