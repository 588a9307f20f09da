"""Speech: features and augmentations of sound, and models that hear."""

from glasshouse.speech import features, models
from glasshouse.speech.layers import (
    MFCC,
    Deltas,
    FrequencyMasking,
    LogMelSpectrogram,
    MelSpectrogram,
    NormalizeFeatures,
    PreEmphasis,
    Resample,
    SpecAugment,
    Spectrogram,
    SpeedPerturbation,
    TimeMasking,
)
