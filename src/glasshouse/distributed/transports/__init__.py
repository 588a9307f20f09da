"""Transports: the collectives of one group of ranks, which move arrays between processes.

`collectives` says what a transport offers; `shared_files` is the clear one, `local` the fast one of
a machine, `mpi` goes through mpi4py, `simulated` has one process only. `board` and `agreement` turn
a rank that died or calls something else into an error. NumPy arrays enter and leave. Read
`collectives`, then `shared_files`, then `local`."""
