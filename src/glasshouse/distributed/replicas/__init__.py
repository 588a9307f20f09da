"""Data parallel training: each rank has the whole model and its own part of the batch.

`batches` chooses a rank's rows; `reducers` average gradients while the backward pass runs;
`replicate` prepares a model for both. A model and a reducer enter, the same model leaves, with
gradients that are means over ranks. Read `replicate`, then `reducers`."""
