"""Text: models."""

from glasshouse.text import models

__all__ = ["models"]
