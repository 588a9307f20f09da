"""Memory: who hands it out (replaceable), how much there is, and what it was for."""

from glasshouse.memory.caching import CachingManager
from glasshouse.memory.direct import DirectManager
from glasshouse.memory.manager import *
from glasshouse.memory.manager import use_manager as use
from glasshouse.memory.telemetry import log, plot, read_log
