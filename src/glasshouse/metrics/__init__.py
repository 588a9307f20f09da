"""Numbers gathered over many batches: averages, accuracies, times, rates, edit distances."""

from glasshouse.metrics.accuracy import Accuracy, TopK
from glasshouse.metrics.edit_distance import EditDistance
from glasshouse.metrics.metric import Average, Count, Metric
from glasshouse.metrics.timer import Throughput, Timer
