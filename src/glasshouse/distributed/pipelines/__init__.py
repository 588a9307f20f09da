"""Pipelines: a model cut into stages, each on a rank, through which microbatches pass.

`stages` cuts the model's graph; `schedules` order the actions of each rank, `simulation` estimates
their costs, `pipeline_run` runs a schedule on one batch, and `pipeline` joins these. The inputs are
a model and a batch, the outputs losses and gradients. Read `schedules`, then `pipeline_run`, then
`pipeline`."""
