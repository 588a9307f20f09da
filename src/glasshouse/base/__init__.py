"""The ground floor: dtypes, shapes, trees, flags and errors. Imports nothing of ours."""
