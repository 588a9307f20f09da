"""Weights brought into oneDNN's layouts by tiles: bit for bit what oneDNN's own reorders make."""

import dataclasses

import numpy as np
import pytest

import glasshouse as gh
from glasshouse.compile.programs import program
from glasshouse.compile.steps.emitted import StaleCode
from glasshouse.nn import functional as F
from glasshouse.targets.cpu.onednn import library as onednn
from glasshouse.targets.cpu.onednn.library import MemoryLayout
from glasshouse.targets.cpu.onednn.lowerer import PrimitivePlanner
from glasshouse.targets.cpu.onednn.tiled_reorders import EDGE, TiledReorder, Tiles, tiles_between

FLOAT32, BFLOAT16 = (onednn.DTYPES[name] for name in ("float32", "bfloat16"))
needs_onednn = pytest.mark.skipif(onednn.library() is None, reason="oneDNN is not here")
TURNED = ((1, 16), (0, 16))  # blocks of 16 columns of 16 rows each


def row_major(*shape, dtype=FLOAT32) -> MemoryLayout:
    strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    return MemoryLayout(dtype, shape, shape, strides, ())


def in_blocks(rows, columns, height) -> MemoryLayout:
    """Blocks of some rows, column by column."""
    padded = (-(-rows // height) * height, columns, 1, 1)
    strides = (height * columns, height, height, height)
    return MemoryLayout(FLOAT32, (rows, columns, 1, 1), padded, strides, ((0, height),))


def turned(rows, columns) -> MemoryLayout:
    shape = (rows, columns, 1, 1)
    return MemoryLayout(FLOAT32, shape, shape, (EDGE * columns, EDGE**2, 1, 1), TURNED)


def moved(tiles: Tiles, x: np.ndarray) -> np.ndarray:
    """Move the elements as the tiles say, one by one."""
    y = np.zeros(tiles.elements, x.dtype)
    for p, r, q, i, j in np.ndindex(tiles.blocks, tiles.strips, tiles.tiles, EDGE, EDGE):
        if p * tiles.strips + r < tiles.filled:
            begin = p * tiles.block + r * tiles.from_strip + q * tiles.from_tile
            to = p * tiles.block + r * EDGE + q * tiles.to_tile
            y[to + j * tiles.to_row + i] = x[begin + i * tiles.from_row + j]
    return y


@pytest.mark.parametrize("rows, columns, height", [(64, 48, 16), (96, 32, 48), (80, 64, 48)])
def test_blocks_have_their_rows_side_by_side(rows, columns, height):
    x = np.arange(rows * columns)
    tiles = tiles_between(row_major(rows, columns, 1, 1), in_blocks(rows, columns, height))
    padded = np.zeros((-(-rows // height) * height, columns), x.dtype)
    padded[:rows] = x.reshape(rows, columns)
    expected = padded.reshape(-1, height, columns).swapaxes(1, 2)
    np.testing.assert_array_equal(moved(tiles, x), expected.ravel())


def test_blocks_are_turned_back():
    x = np.arange(64 * 32).reshape(4, 2, EDGE, EDGE)  # blocks of rows and columns, columns, rows
    tiles = tiles_between(turned(64, 32), row_major(64, 32, 1, 1))
    expected = x.transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(moved(tiles, x.ravel()), expected.ravel())


OTHERS = {
    "rows that are no whole tiles": (row_major(40, 32, 1, 1), in_blocks(40, 32, 48)),
    "columns that are no whole tiles": (row_major(48, 40, 1, 1), in_blocks(48, 40, 48)),
    "narrow floats": (row_major(48, 32, 1, 1, dtype=BFLOAT16), in_blocks(48, 32, 48)),
    "no change": (row_major(48, 32), row_major(48, 32)),
    "a part of a matrix": (
        row_major(48, 32, 1, 1)._replace(strides=(64, 1, 1, 1)),
        in_blocks(48, 32, 48),
    ),
    "columns in blocks": (row_major(32, 48), row_major(32, 48)._replace(blocks=((1, 48),))),
    "turned columns of a kernel": (
        row_major(32, 32, 3, 3),
        MemoryLayout(FLOAT32, (32, 32, 3, 3), (32, 32, 3, 3), (4608, 2304, 768, 256), TURNED),
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_layouts_are_left_to_onednn(name):
    assert tiles_between(*OTHERS[name]) is None


def pointwise(rows: int, columns: int, stride: int) -> list[np.ndarray]:
    """A convolution of single positions, and its gradients."""
    rng = np.random.default_rng(0)
    x = gh.tensor(rng.standard_normal((2, columns, 6, 6), np.float32))
    w = gh.tensor(rng.standard_normal((rows, columns, 1, 1), np.float32))
    x.requires_grad = w.requires_grad = True
    y = F.conv2d(x, w, stride=stride)
    (y * y).sum().backward()
    return [a.numpy() for a in (y, x.grad, w.grad)]


@pytest.mark.slow
@needs_onednn
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("rows, columns", [(64, 32), (2048, 64), (80, 48), (128, 1024), (40, 24)])
def test_convolutions_have_the_bits_of_onednns_reorders(
    without_winograd, monkeypatch, rows, columns, stride
):
    ours = pointwise(rows, columns, stride)
    monkeypatch.setattr(program, "programs", {})
    monkeypatch.setattr(PrimitivePlanner, "tiles_between", lambda *_: None)
    for x, y in zip(ours, pointwise(rows, columns, stride), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.skipif(
    onednn.library() is None or not onednn.library().chooses_panels,
    reason="oneDNN's blocks are narrower than a tile here",
)
def test_layouts_that_onednn_chooses_are_met_by_tiles(without_winograd, monkeypatch):
    planned = []
    emit = TiledReorder.emit
    monkeypatch.setattr(TiledReorder, "emit", lambda self: planned.append(self) or emit(self))
    pointwise(256, 128, 2)
    names = [info.name for e in program.programs.values() for info in e.program.step_infos()]
    assert names.count("reorder") >= len(planned) > 0


@needs_onednn
def test_code_for_other_layouts_is_stale(without_winograd):
    """For another number of threads, perhaps: our kernels would write what oneDNN does not read."""
    dnnl, calls = onednn.library(), []
    load = onednn.PrimitiveCall.load
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onednn.PrimitiveCall, "load", lambda self: calls.append(self) or load(self))
        pointwise(64, 32, 1)
    call = next(c.call for c in calls if c.call.layouts)
    assert dnnl.chosen_layouts(call.args) == call.layouts
    other = [layout._replace(strides=(0,) * 4) for layout in call.layouts]
    with pytest.raises(StaleCode, match="other layouts"):
        dataclasses.replace(calls[0], call=call._replace(layouts=other)).load()
