"""Images: models."""

from glasshouse.vision import models

__all__ = ["models"]
