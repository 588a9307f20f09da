"""Many processes: collectives, and training on several ranks."""

from glasshouse.distributed.replicas.batches import (
    BatchShare,
    RankBatchSampler,
    part_of_rank,
    share_of,
)
from glasshouse.distributed.checkpoints.checkpoint import Saving, save_checkpoint
from glasshouse.distributed.transports.collectives import Collectives, Request, WrappedCollectives
from glasshouse.distributed.groups.functions import *
from glasshouse.distributed.launching.launch import spawn
from glasshouse.distributed.groups.membership import *
from glasshouse.distributed.groups.objects import all_gather_object, broadcast_object
from glasshouse.distributed.pipelines.pipeline import Pipeline, pipeline
from glasshouse.distributed.checkpoints.resume import load_checkpoint
from glasshouse.distributed.pipelines.schedules import Schedule, make_schedule
from glasshouse.distributed.transports.simulated import simulated
from glasshouse.distributed.step_costs import step_costs
from glasshouse.ops.process import ProcessGroup
from glasshouse.distributed.groups.mesh import DeviceMesh, mesh
from glasshouse.distributed.groups.placement import *
from glasshouse.distributed.replicas.reducers import *
from glasshouse.distributed.replicas.replicate import no_sync, replicate
from glasshouse.distributed.zero_stages.zero import ZeroOptimizer, zero
from glasshouse.distributed.tensor_parallel.context import ring_attention
from glasshouse.distributed.groups.randomness import seed
from glasshouse.distributed.tensor_parallel.styles import *
from glasshouse.distributed.tensor_parallel.vocabulary import cross_entropy
