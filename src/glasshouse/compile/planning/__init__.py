"""The plan of a Program: the order of its steps, and the place of each value in memory.

`plan` calls the passes in turn; `order` and `overlap` put steps in order, the latter beside
collectives; `plan_memory` lets values that do not live together share an arena. A graph enters, a
ProgramPlan leaves; nothing is compiled or run. Read `plan`, then `plan_memory`."""
