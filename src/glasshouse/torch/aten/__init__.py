"""ATen's operators as compositions of cards, in files by family.

`table` is the table from names to functions; each family's file fills it. `draws` gives random
keys, `higher_order` operators on functions, `own_operators` operators that PyTorch lacks,
`recurrent_operators` whole recurrent layers, `foreach` operators on lists. Payloads of tensors come
in and go out. Read `table`, then `elementwise`."""

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
