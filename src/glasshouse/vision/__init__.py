"""Images: models that see."""

from glasshouse.vision import models
