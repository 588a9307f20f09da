"""Speech: features and augmentations of sound, and models that hear."""

from glasshouse.speech import features, models
from glasshouse.speech.layers import *
