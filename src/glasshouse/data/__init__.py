"""Data sets read by index, composed of small pieces, and the loader that makes batches of them."""

from glasshouse.data.collate import collate
from glasshouse.data.dataset import (
    BatchDataset,
    ConcatDataset,
    Dataset,
    ListDataset,
    MapDataset,
    MergeDataset,
    PrefetchDataset,
    ResampleDataset,
    ShuffleDataset,
    SpanDataset,
    TensorDataset,
)
from glasshouse.data.digits import digits
from glasshouse.data.loader import DataLoader
