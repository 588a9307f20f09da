"""Speech: models that hear, and what they train with."""

from glasshouse.speech import models
