"""`python -m glasshouse.cli` is the `glasshouse` command."""

from glasshouse.cli.main import main

main(prog_name="glasshouse")
