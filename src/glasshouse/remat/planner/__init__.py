"""What to compute again so that a step fits a budget: solvers, and the planner that asks them."""
