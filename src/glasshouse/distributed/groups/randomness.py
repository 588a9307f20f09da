"""Random numbers of ranks: where they differ, and where they agree."""

from collections.abc import Iterator
from contextlib import contextmanager

from glasshouse.distributed.groups.mesh import DeviceMesh
from glasshouse.ops.process import ProcessGroup
from glasshouse.tensor import random
from glasshouse.tensor.random import key_of, mixed


def seed(n: int, mesh: DeviceMesh, along: str | tuple[str, ...] = "data") -> None:
    """Restart the default generator at `n` and this rank's place along these axes of the mesh:
    ranks that differ along them draw different numbers, others the same. Call it when the model is
    built.

    Raises: DTypeError unless n is an integer, OptionError for an unknown axis
    """
    group = mesh.group(*((along,) if isinstance(along, str) else along))
    random.seed(n)
    move_apart(group)


def move_apart(group: ProcessGroup) -> None:
    """Move the default generator to the numbers of this rank of the group."""
    if group.rank:
        generator = random.default_generator()
        state = generator.state()
        first, second = state["key"]
        key = key_of((first << 32 | second) ^ (mixed(group.rank) << 64))
        generator.set_state({**state, "key": key})


@contextmanager
def drawn_apart(group: ProcessGroup) -> Iterator[None]:
    """Inside, the ranks of a group draw different numbers; after it, the same again."""
    generator = random.default_generator()
    before = generator.state()
    move_apart(group)
    try:
        yield
    finally:
        generator.set_state({**before, "draws": generator.state()["draws"]})
