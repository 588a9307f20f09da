"""Lifetimes of PyTorch's storages: which operator made each, and when it was freed.

A storage is first seen as an operator's result, or as an operand: then it existed before. Memory
that an operator allocates and frees within itself is not seen."""

import weakref
from functools import partial
from typing import Any

import torch

from glasshouse import memory
from glasshouse.dispatch import state
from glasshouse.dispatch.scope import path_of
from glasshouse.memory import Tag
from glasshouse.profile.holders import tensor_kinds
from glasshouse.torch.observe.operator_cost import tensors_in
from glasshouse.torch.patches.tensors import storage_address, viewed_tensor

EXISTED = "tensors that were there before"


class StorageWatch:
    """Reports the storages of operands and results to a watcher."""

    def __init__(self, watcher: Any) -> None:
        self.tell: Any = watcher.library_memory
        self.references: dict[int, weakref.ref[Any]] = {}  # by address

    def operands(self, args: Any) -> None:
        """Note operands that are about to be read: an unknown storage existed before."""
        for tensor in args:
            if isinstance(tensor, torch.Tensor):
                self.note(tensor, "existed", EXISTED)
            elif type(tensor) in (list, tuple):
                self.operands(tensor)

    def results(self, result: float | torch.Tensor, name: str) -> None:
        """Note results of the operator with this name."""
        if isinstance(result, torch.Tensor):
            self.note(result, "alloc", name)
        else:
            for tensor in tensors_in(result):
                self.note(tensor, "alloc", name)

    def pass_over(self, tensors: Any) -> None:
        """Ignore tensors over memory that is reported elsewhere, or that NumPy owns."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            address = storage_address(storage)
            self.references[address] = weakref.ref(storage, partial(self.forget, address))

    def forget(self, address: int, _: Any) -> None:
        """Forget a storage that was not reported, at its end."""
        self.references.pop(address, None)

    def note(self, tensor: torch.Tensor, kind: str, owner: str) -> None:
        try:
            storage = tensor.untyped_storage()
        except NotImplementedError:  # sparse tensors are several
            return
        if storage_address(storage) in self.references or is_ours(storage):
            return
        module = path_of(state.scope)
        tag = existing(tensor, module) if owner is EXISTED else Tag(owner, module, state.phase)
        spec = place_of(tensor)[1] if kind == "existed" else ""
        self.hold(storage, storage.nbytes(), kind, tag, spec=spec)

    def hold(
        self, storage: Any, nbytes: int, kind: str, owner: Tag, resource: Any = None, spec: str = ""
    ) -> None:
        """Report a new storage to the watcher, and later its end. `resource` lives as long as the
        storage; `spec` describes a tensor that existed before."""
        memory.current().catch_up()  # so that it reports earlier ends first
        address = storage_address(storage)
        gone = partial(self.gone, address, nbytes, owner, resource)
        self.references[address] = weakref.ref(storage, gone)
        self.tell(kind, address, nbytes, owner, spec)

    def gone(self, address: int, nbytes: int, owner: Tag, resource: Any, _: Any) -> None:
        """Report the end of a storage."""
        if self.references.pop(address, None) is not None:
            self.tell("free", address, nbytes, owner)

    def end(self) -> None:
        """Stop watching."""
        self.references.clear()


def place_of(tensor: torch.Tensor) -> tuple[list[int], str]:
    """The addresses of a tensor, PyTorch's and our manager's, and its dtype and shape as text."""
    spec = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    try:
        storage = tensor.untyped_storage()
        has_contents = storage.device.type != "meta"
        return [storage_address(storage), *([storage.data_ptr()] if has_contents else [])], spec
    except (
        NotImplementedError,
        RuntimeError,
        ValueError,
    ):  # sparse ones, and those without contents
        return [], spec


tensor_kinds[torch.Tensor] = place_of


def existing(tensor: torch.Tensor, module: str) -> Tag:
    """A tag for a tensor that existed before the recording, by where it is first read."""
    viewed = viewed_tensor(tensor)
    if isinstance(tensor if viewed is None else viewed, torch.nn.Parameter):
        return Tag("parameter", module)
    return Tag("optimizer's state or gradient" if state.phase == "optimizer" else EXISTED)


def is_ours(storage: Any) -> bool:
    """Whether a storage lies in memory of our manager, as results of Programs do: the manager
    reports it itself."""
    return storage.device.type == "cpu" and storage.data_ptr() in memory.current().live
