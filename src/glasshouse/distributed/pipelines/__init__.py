"""Pipelines: a model cut into stages, each on a rank, through which microbatches pass.

`stages` cuts the model's graph; `schedules` say which rank does what and when, `simulation` what
that costs, `pipeline_run` carries it out on one batch, and `pipeline` joins these. A model and a
batch enter; losses and gradients leave. Read `schedules`, then `pipeline_run`, then
`pipeline`."""
