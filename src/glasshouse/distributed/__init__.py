"""Many processes: collectives, and what trains on several ranks."""

from glasshouse.distributed.batches import BatchShare, RankBatchSampler, part_of_rank, share_of
from glasshouse.distributed.checkpoint import Saving, save_checkpoint
from glasshouse.distributed.collectives import Collectives, Request, WrappedCollectives
from glasshouse.distributed.functions import (
    all_gather,
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    copy_to,
    permute,
    reduce_scatter,
    shard,
)
from glasshouse.distributed.launch import spawn
from glasshouse.distributed.membership import (
    group,
    init,
    is_initialized,
    rank,
    register_transport,
    shutdown,
    size,
    world,
)
from glasshouse.distributed.objects import all_gather_object, broadcast_object
from glasshouse.distributed.pipeline import Pipeline, pipeline
from glasshouse.distributed.resume import load_checkpoint
from glasshouse.distributed.schedules import Schedule, make_schedule
from glasshouse.distributed.simulated import simulated
from glasshouse.distributed.step_costs import step_costs
from glasshouse.ops.collective import ProcessGroup
from glasshouse.distributed.mesh import DeviceMesh, mesh
from glasshouse.distributed.placement import (
    Partial,
    Replicate,
    Shard,
    Sharding,
    gather,
    place,
    sharding_of,
)
from glasshouse.distributed.reducers import (
    CoalescingReducer,
    InlineReducer,
    OverlappedReducer,
    Reducer,
)
from glasshouse.distributed.replicate import no_sync, replicate
from glasshouse.distributed.zero import ZeroOptimizer, zero
from glasshouse.distributed.context import ring_attention
from glasshouse.distributed.randomness import seed
from glasshouse.distributed.styles import (
    Apart,
    Column,
    ContextParallel,
    Heads,
    Row,
    Sequence,
    Style,
    Vocabulary,
    distribute,
)
from glasshouse.distributed.vocabulary import cross_entropy
