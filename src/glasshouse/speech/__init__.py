"""Speech: models."""

from glasshouse.speech import models

__all__ = ["models"]
