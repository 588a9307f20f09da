"""Captured calls compared with plain Python.

`verification` runs both and compares results and effects, in copies of the world that a function
may read or write (`world`); `kernel_check` finds the primitive whose kernel differs from its
reference. A captured function comes in, a list of differences goes out. Read `verification`
first."""
