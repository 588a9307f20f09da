"""ATen's operators as compositions of cards, in files by family."""

from glasshouse.torch.aten import (
    convolution,
    create,
    elementwise,
    index,
    loss,
    matrix,
    movement,
    norm,
    pool,
    random,
    recurrent,
    reduce,
    sample,
)
