"""Memory: the managers that allocate it (replaceable), its amounts, and a log of its uses."""

from glasshouse.memory.caching import CachingManager
from glasshouse.memory.direct import DirectManager
from glasshouse.memory.manager import *
from glasshouse.memory.manager import use_manager as use
from glasshouse.memory.telemetry import log, plot, read_log
