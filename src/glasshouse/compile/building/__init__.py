"""The C compiler, and the folder of its libraries.

`toolchain` finds the compiler, checks it and builds shared libraries; `disk_cache` keeps the
results within a limit of bytes and cleans up after crashes. C text enters, a loaded library leaves.
Read `toolchain`, then `disk_cache`."""
