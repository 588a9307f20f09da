"""The steps of a loop: the parts of their time, one by one and over time.

`steady` finds the steps of a loop and the steady ones among them; `breakdown` splits the median
one; `step_times` has each step and its waits; `utilisation` the activity of threads and streams. A
trace goes in, tables come out. Read `steady`, then `breakdown`."""
