"""The array functions of the Array API, and what every other array function is composed of.

`elementwise`, `reduce`, `manipulate`, `creation`, `contract` (products), `search` and `index` are
families of functions composed of cards; `elementary` has formulas, `index_plan` the meaning of
keys, `namespace` constants and inspection. Tensors, arrays and numbers enter, tensors leave. Read
`elementwise`, then `manipulate`, then `index_plan` and `index`."""
