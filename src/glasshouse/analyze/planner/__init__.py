"""Plan recomputation, or offloading to the host, so that a step fits a budget of bytes.

`planner` weighs the memory of kept values against the cost of recomputing them; `chain` and
`solvers` choose, `blocks` applies the choice to modules, `step_values` to single values, `offload`
moves values. The input is a model and a budget, the output a `Plan`. Read `plan`, then `planner`,
then `solvers`."""
