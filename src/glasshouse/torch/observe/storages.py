"""Memory of PyTorch's tensors on the way: which operator made a storage, and when it went.

A storage is first seen as an operator's result, or as an operand of one, and then was there before.
What operators take and give back within themselves is not seen."""

import weakref
from functools import partial

import torch

from glasshouse import memory
from glasshouse.dispatch import Watcher, state
from glasshouse.dispatch.scope import path_of
from glasshouse.memory import Tag
from glasshouse.profile.holders import tensor_kinds
from glasshouse.torch.observe.operator_cost import tensors_in
from glasshouse.torch.patches.tensors import storage_address, viewed_tensor

EXISTED = "tensors that were there before"


class StorageWatch:
    """Tells a watcher of the storages of operands and results."""

    def __init__(self, watcher: Watcher):
        self.tell = watcher.library_memory
        self.references: dict[int, weakref.ref] = {}  # by address

    def operands(self, args) -> None:
        """These are about to be read: what is not known was there before."""
        for tensor in args:
            if isinstance(tensor, torch.Tensor):
                self.note(tensor, "existed", EXISTED)
            elif type(tensor) in (list, tuple):
                self.operands(tensor)

    def results(self, result, name: str) -> None:
        """These were made by the operator of this name."""
        if isinstance(result, torch.Tensor):
            self.note(result, "alloc", name)
        else:
            for tensor in tensors_in(result):
                self.note(tensor, "alloc", name)

    def pass_over(self, tensors) -> None:
        """These show memory that is told of, or that NumPy has: they are none of their own."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            address = storage_address(storage)
            self.references[address] = weakref.ref(storage, partial(self.forget, address))

    def forget(self, address: int, _) -> None:
        """A storage is no more that was not told of."""
        self.references.pop(address, None)

    def note(self, tensor, kind: str, owner: str) -> None:
        try:
            storage = tensor.untyped_storage()
        except NotImplementedError:  # sparse tensors are several
            return
        if storage_address(storage) in self.references or is_ours(storage):
            return
        module = path_of(state.scope)
        made = existing(tensor, module) if owner is EXISTED else Tag(owner, module, state.phase)
        spec = place_of(tensor)[1] if kind == "existed" else ""
        self.hold(storage, storage.nbytes(), kind, made, spec=spec)

    def hold(self, storage, nbytes: int, kind: str, owner: Tag, kept=None, spec="") -> None:
        """Tell of a storage that is not known, and of its end; `kept` stays as long as it does, and
        `spec` says what was there before."""
        memory.current().catch_up()  # it has not told yet of what ended before
        address = storage_address(storage)
        gone = partial(self.gone, address, nbytes, owner, kept)
        self.references[address] = weakref.ref(storage, gone)
        self.tell(kind, address, nbytes, owner, spec)

    def gone(self, address: int, nbytes: int, owner: Tag, kept, _) -> None:
        """A storage is no more."""
        if self.references.pop(address, None) is not None:
            self.tell("free", address, nbytes, owner)

    def end(self) -> None:
        """Look no longer."""
        self.references.clear()


def place_of(tensor: torch.Tensor) -> tuple[list[int], str]:
    """Where a tensor lies, by PyTorch's address and by our manager's, and its shape and dtype."""
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


def is_ours(storage) -> bool:
    """Whether a storage lies in memory of our manager, as results of Programs do: that tells of it
    itself."""
    return storage.device.type == "cpu" and storage.data_ptr() in memory.current().live
