"""TorchDynamo's tracing: work that our backend skips, and the handling of log messages."""

from typing import Any

from glasshouse.torch.patches.names import private, slot

DYNAMO = "torch._dynamo"
LEAN = "trace in less time"
WAITING = "break no graph at messages of loggers"

SHOULD_WRAP = slot(
    f"{DYNAMO}.variables.higher_order_ops:LocalMapWrappedHigherOrderVariable.should_wrap_in_hop",
    "2.10",
    LEAN,
)
LOCAL_MAP = "torch.distributed.tensor.experimental._func_map"
GUARD_LATENCY = slot(f"{DYNAMO}.guards:profile_guard_manager", "2.6", LEAN)
FUNCTION_NAME = slot(f"{DYNAMO}.symbolic_convert:get_funcname", "2.6", LEAN)
VERBOSE = slot(f"{DYNAMO}.config:verbose", "2.6", LEAN)
guards_log: Any = private(f"{DYNAMO}.guards:guards_log", "2.6", LEAN)
calls_log: Any = private(f"{DYNAMO}.output_graph:trace_call_log", "2.6", LEAN)
trace_log: Any = private("torch._logging._internal:trace_log", "2.6", LEAN)

Codegen: Any = private(f"{DYNAMO}.codegen:PyCodegen", "2.6", WAITING)
VariableTracker: Any = private(f"{DYNAMO}.variables.base:VariableTracker", "2.6", WAITING)
ConstantVariable: Any = private(f"{DYNAMO}.variables.constant:ConstantVariable", "2.6", WAITING)
LoggerVariable: Any = private(f"{DYNAMO}.variables.misc:LoggingLoggerVariable", "2.6", WAITING)
CALL_METHOD = slot(f"{DYNAMO}.variables.misc:LoggingLoggerVariable.call_method", "2.6", WAITING)
REORDERABLE = slot(f"{DYNAMO}.config:reorderable_logging_functions", "2.6", WAITING)
NESTED_BREAKS = slot(f"{DYNAMO}.config:nested_graph_breaks", "2.9", WAITING)
