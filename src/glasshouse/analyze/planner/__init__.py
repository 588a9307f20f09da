"""Plan recomputation, or offloading to the host, so that a step fits a budget of bytes.

`planner` weighs what a step keeps against what computing it again costs; `chain` and `solvers`
choose, `blocks` applies the choice to modules, `step_values` to single values, `offload` moves
values. A model and a budget enter, a `Plan` leaves. Read `plan`, then `planner`, then
`solvers`."""
