"""Transports: the collectives of one group of ranks, which move arrays between processes.

`collectives` defines a transport's interface; `shared_files` is the clear one, `local` the fast one
of a machine, `mpi` goes through mpi4py, `simulated` has one process only. `board` and `agreement`
turn a rank that died or makes another call into an error. Inputs and outputs are NumPy arrays. Read
`collectives`, then `shared_files`, then `local`."""
