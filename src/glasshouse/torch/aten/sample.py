"""Images sampled at a grid of places, and their gradients."""

from typing import Any

from glasshouse.nn.functional.sample import OUTSIDE, SAMPLE_MODES, grid_sample
from glasshouse.torch.aten.table import aten
from glasshouse.transforms import vjp


@aten("grid_sampler_2d", "grid_sampler_3d")
def grid_sampler(x: Any, grid: Any, interpolation: Any, padding: Any, align_corners: Any) -> Any:
    """(N, C, *s): images (N, C, *S) at the places of a grid (N, *s, axes), columns first."""
    if 0 in x.shape or 0 in grid.shape:
        raise NotImplementedError
    mode, outside = SAMPLE_MODES[interpolation], OUTSIDE[padding]
    return grid_sample(x, grid, mode, outside, align_corners)


@aten("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def grid_sampler_backward(
    g: Any, x: Any, grid: Any, interpolation: Any, padding: Any, align_corners: Any, mask: Any
) -> Any:
    """The gradients of images and grid."""

    def sampled(x, grid):
        return grid_sampler(x, grid, interpolation, padding, align_corners)

    _, pull = vjp(sampled, x, grid)
    return [grad if is_needed else None for grad, is_needed in zip(pull(g), mask)]
