"""The steps of a loop: the parts of their time, one by one and over time.

`steady` finds the steps of a loop and which of them are steady; `breakdown` parts the median one;
`step_times` has each step and what it waits for; `utilisation` what each thread and stream does. A
trace goes in, tables come out. Read `steady`, then `breakdown`."""
