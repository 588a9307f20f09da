"""Processes of ranks: started, watched, ended together and, if wanted, started again.

`launch` runs a function on several ranks (`gh.distributed.spawn`); `supervise` runs `glasshouse
launch`, `run_script` is the main module of its ranks, `nodes` links several machines. A script or
function enters; its results, or the error that caused the end, leave. Read `launch`, then
`supervise`."""
