"""Data sets read by index, composed of small pieces, and the loader that makes batches of them."""

from glasshouse.data.blob import BlobDataset, memory_mapped, write_blob
from glasshouse.data.collate import Collate, PadCollate, collate, default_collate, default_convert
from glasshouse.data.colour import ColorJitter, RandAugment
from glasshouse.data.dataset import *
from glasshouse.data.digits import digits
from glasshouse.data.folder import ImageFolder
from glasshouse.data.formats import cifar, mnist, read_cifar, read_idx, write_idx
from glasshouse.data.image import *
from glasshouse.data.loader import DataLoader
from glasshouse.data.mixing import CutMix, MixUp
from glasshouse.data.objects import BoxCollate, CocoDetection, VOCDetection
from glasshouse.data.sampler import *
from glasshouse.data.shard import TarShards, decode_sample, write_shards
from glasshouse.data.split import Subset, random_split
from glasshouse.data.stream import *
from glasshouse.data.table import ArrowDataset, HuggingFaceDataset, HuggingFaceStream
from glasshouse.data.text import *
from glasshouse.data.worker import WorkerInfo, get_worker_info
