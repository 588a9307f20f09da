"""The measurements of `glasshouse bench`: our models and others', one process per framework.

`own_models` measures the models of `cases` beside `torch_twins`, the same in PyTorch;
`torch_modes` measures models of `torch_cases`, which others wrote, compiled by us beside PyTorch's
own modes. `process` starts a `worker` and times its steps. Names of models enter, records and
tables leave. Read `cases`, `worker`, `process`, then `own_models`."""
