"""Text: models that read and write, tokenizers, vectors of sentences."""

from glasshouse.text import models
from glasshouse.text.engine import *
from glasshouse.text.grammars import *
from glasshouse.text.loading import load_model
from glasshouse.text.sentences import *
from glasshouse.text.server import *
from glasshouse.text.streams import *
from glasshouse.text.tokenizers import *
