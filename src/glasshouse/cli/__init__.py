"""The command line: `glasshouse train`, `ops`, `info`, `flags`."""

from glasshouse.cli.main import main
