"""Numbers gathered over many batches: averages, qualities of predictions, times, rates, memory."""

from glasshouse.metrics.accuracy import Accuracy, TopK
from glasshouse.metrics.confusion import F1, ConfusionMatrix, IoU, Precision, Recall
from glasshouse.metrics.curves import ROCAUC, AveragePrecision, CalibrationError
from glasshouse.metrics.detection import MeanAveragePrecision, box_iou
from glasshouse.metrics.edit_distance import EditDistance
from glasshouse.metrics.metric import Average, Count, Metric
from glasshouse.metrics.regression import *
from glasshouse.metrics.resources import PeakMemory
from glasshouse.metrics.text import (
    BLEU,
    BitsPerCharacter,
    CharErrorRate,
    Perplexity,
    WordErrorRate,
)
from glasshouse.metrics.timer import Throughput, Timer
