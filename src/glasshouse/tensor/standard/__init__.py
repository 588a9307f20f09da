"""The array functions of the Array API, of which all other array functions are composed.

`elementwise`, `reduce`, `manipulate`, `creation`, `contract` (products), `search` and `index` are
families of functions composed of cards; `elementary` has formulas, `index_plan` the meaning of
keys, `namespace` constants and inspection. Tensors, arrays and numbers enter, tensors leave. Read
`elementwise`, then `manipulate`, then `index_plan` and `index`."""
