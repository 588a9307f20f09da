"""Speech: features and augmentations of sound, models that hear, decoders and language models."""

from glasshouse.speech import features, models
from glasshouse.speech.alignment import *
from glasshouse.speech.augment import *
from glasshouse.speech.beam_criterion import *
from glasshouse.speech.decoder import *
from glasshouse.speech.kaldi import *
from glasshouse.speech.layers import *
from glasshouse.speech.ngram import *
from glasshouse.speech.readers import *
