"""Text: models that read, and what they train with."""

from glasshouse.text import models
