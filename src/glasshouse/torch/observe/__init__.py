"""Eager PyTorch under the FLOP counter and the profiler.

`observer` notifies our watchers of each operator, module and pass; `operator_cost` says what an
operator costs, by the cards that it is made of; `storages` and `ledger` follow memory, `threads`
and `told_loaders` what runs beside. Operators come in, events and costs go out. Read `observer`
first."""
