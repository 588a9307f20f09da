"""Whether a training step fits a device, and what to change where it does not."""

from glasshouse.estimate.answer import StepChange, FitAnswer
from glasshouse.estimate.fits import fits
