"""Eager PyTorch under the FLOP counter and the profiler.

`observer` notifies our watchers of each operator, module and pass; `operator_cost` computes an
operator's cost by its cards; `storages` and `ledger` track memory, `threads` new threads, and
`loader_times` data loaders. Operators come in, events and costs go out. Read `observer` first."""
