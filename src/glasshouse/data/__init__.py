"""Data sets read by index, composed of small pieces, and the loader that makes batches of them."""

from glasshouse.data.collate import PadCollate, collate, default_collate, default_convert
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
    StackDataset,
    TensorDataset,
    TransformDataset,
)
from glasshouse.data.digits import digits
from glasshouse.data.loader import DataLoader
from glasshouse.data.sampler import (
    BatchSampler,
    BucketBatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from glasshouse.data.split import Subset, random_split
from glasshouse.data.stream import (
    BatchStream,
    ChainDataset,
    FilterStream,
    IterableDataset,
    IterableSource,
    MapStream,
    PartStream,
    PrefetchStream,
    ShuffleStream,
    SpanStream,
)
from glasshouse.data.worker import WorkerInfo, get_worker_info
