"""Processes of ranks: started, watched, ended together and, if wanted, started again.

`launch` runs a function on several ranks (`gh.distributed.spawn`); `supervise` is what `glasshouse
launch` does, `run_script` what each of its ranks runs first, `nodes` what several machines agree
on. A script or function enters; its results, or the error that caused the end, leave. Read
`launch`, then `supervise`."""
