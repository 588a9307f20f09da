"""Many processes: collectives, and what trains on several ranks."""

from glasshouse.distributed.batches import BatchShare, RankBatchSampler, part_of_rank, share_of
from glasshouse.distributed.checkpoint import Saving, save_checkpoint
from glasshouse.distributed.collectives import Collectives, Request, WrappedCollectives
from glasshouse.distributed.functions import *
from glasshouse.distributed.launch import spawn
from glasshouse.distributed.membership import *
from glasshouse.distributed.objects import all_gather_object, broadcast_object
from glasshouse.distributed.pipeline import Pipeline, pipeline
from glasshouse.distributed.resume import load_checkpoint
from glasshouse.distributed.schedules import Schedule, make_schedule
from glasshouse.distributed.simulated import simulated
from glasshouse.distributed.step_costs import step_costs
from glasshouse.ops.collective import ProcessGroup
from glasshouse.distributed.mesh import DeviceMesh, mesh
from glasshouse.distributed.placement import *
from glasshouse.distributed.reducers import *
from glasshouse.distributed.replicate import no_sync, replicate
from glasshouse.distributed.zero import ZeroOptimizer, zero
from glasshouse.distributed.context import ring_attention
from glasshouse.distributed.randomness import seed
from glasshouse.distributed.styles import *
from glasshouse.distributed.vocabulary import cross_entropy
