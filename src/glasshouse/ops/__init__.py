"""The primitive cards, by family. Importing this fills the registry."""

from glasshouse.ops.built_in import BUILT_IN, FAMILIES
