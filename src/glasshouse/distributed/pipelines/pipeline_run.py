"""One pass of a batch through a pipeline: the actions of a schedule, carried out on tensors.

Each forward makes a separate tape for its microbatch. A thread for each other rank and direction
sends or receives tensors in order. No rank waits to send, and a forward or backward waits for its
own operands alone."""

from collections.abc import Callable
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from glasshouse.analyze.meta import placed
from glasshouse.autograd import backward, is_grad_enabled
from glasshouse.base import ShapeError, Spec
from glasshouse.compile.lowering.source_map import about_bytes
from glasshouse.dispatch import backend as backends
from glasshouse.dispatch.value import adopt
from glasshouse.dispatch.watch import RECEIVING, MessageTimes, tell
from glasshouse.distributed.pipelines.simulation import FORWARD, Action
from glasshouse.distributed.transports.collectives import Channel, Request
from glasshouse.ops.process import ProcessGroup, process
from glasshouse.tensor import Tensor, eval

if TYPE_CHECKING:
    from glasshouse.distributed.pipelines.pipeline import StagePlan


Result = tuple[str, int, int]  # forward or backward, the stage, the microbatch


class Links:
    """Channels of this rank of a group, made when they are first used; `started` are the calls of a
    pass, with (verb, peer, bytes)."""

    def __init__(self, group: ProcessGroup) -> None:
        self.group = group
        self.channels: dict[tuple[str, int], Channel] = dict[tuple[str, int], Channel]()
        self.started: list[tuple[str, int, int, Request]] = []

    def start(self, verb: str, peer: int, array: np.ndarray) -> Request:
        """Begin to send an array to a rank, or receive one from it."""
        if (verb, peer) not in self.channels:
            self.channels[verb, peer] = Channel(f"{verb} {self.group.name} {peer}")
        call = getattr(process.transport(self.group), verb)
        request = Request(lambda: call(array, peer))
        self.channels[verb, peer].put(request)
        self.started.append((verb, peer, array.nbytes, request))
        return request

    def finish(self) -> None:
        """Wait until all that was started is done, and report its times to watchers."""
        started, self.started = self.started, []
        for verb, peer, nbytes, request in started:
            request.wait()
            name = f"{verb} {self.group.name} {about_bytes(nbytes)}"
            way, ranks = "to" if verb == "send" else "from", self.group.ranks
            channel = f"messages {way} rank {ranks[peer]}"
            times = request.begin_ns, request.end_ns
            tell("message", MessageTimes(name, channel, ranks, nbytes, *times))

    def send(self, x: Tensor, peer: int) -> None:
        """Begin to send a copy of a tensor, whose own memory does not wait for the other rank."""
        tell("sent", self.group, x.nbytes)
        self.start("send", peer, np.array(x.numpy(), order="C"))

    def receive(self, spec: Spec, peer: int) -> "Message":
        """Begin to receive a tensor."""
        array = np.empty(spec.shape, spec.dtype.np)
        return Message(array, self.start("receive", peer, array))

    def close(self) -> None:
        """End the threads."""
        for channel in self.channels.values():
            channel.end()
        self.channels.clear()


class PlannedLinks(Links):
    """Links of a step that is analysed: a send does nothing, a receive is there at once."""

    def send(self, x: Tensor, peer: int) -> None:
        tell("sent", self.group, x.nbytes)
        eval(x)

    def receive(self, spec: Spec, peer: int) -> "PlannedMessage":
        return PlannedMessage(spec, None)


class Message(NamedTuple):
    """A tensor that is on its way to this rank."""

    array: Any
    request: Any

    def tensor(self) -> Tensor:
        """The tensor, in NumPy's memory, when it is there."""
        begin_ns = perf_counter_ns()
        self.request.wait()
        tell("region", RECEIVING, begin_ns)
        return adopt(self.array)


class PlannedMessage(Message):
    """A tensor that has a spec and no value."""

    def tensor(self) -> Any:
        return placed(self.array, backends.current())


class PipelineRun:
    """Run of a pipeline on this rank: `parts` are the model's arguments for each microbatch, plan
    and links those of the pipeline."""

    def __init__(self, plan: "StagePlan", links: Links, parts: list[tuple[Any, ...]]) -> None:
        self.plan = plan
        self.parts = parts
        self.links: Links | PlannedLinks = (
            links if backends.current().computes else PlannedLinks(links.group)
        )
        self.loss: Callable[..., Any] | None = None
        self.targets: list[Any] = []
        self.scores: dict[int, Any] = {}  # the model's result for a microbatch
        self.total: Any = None  # loss of the microbatches so far
        self.here: dict[
            Result | None, list[Any]
        ] = {}  # tensors that a stage of this rank reads next
        self.coming: dict[Result, list[Message]] = {}
        self.alive: dict[tuple[int, int], tuple[list[Any], list[Any]]] = {}  # operands and results

    def go(self, actions: list[Action]) -> None:
        """Run the actions; returns when all has been sent."""
        self.links.started.clear()  # leftovers of a pass that failed
        eval()  # recorded collectives must not wait for what this rank waits for
        for action in actions:
            begin_ns = perf_counter_ns()
            getattr(self, action.kind)(action)
            tell("annotation", str(action), begin_ns)
        self.links.finish()

    def send(self, action: Action) -> None:
        for x in self.here.pop(action.result):
            self.links.send(x, action.peer)

    def receive(self, action: Action) -> None:
        specs = self.specs_of(action.result)
        self.coming[action.result] = [self.links.receive(spec, action.peer) for spec in specs]

    def specs_of(self, result: Result) -> list[Spec]:
        """Specs of a stage's results, or of the cotangents of its inputs."""
        kind, stage, _ = result
        if kind == FORWARD:
            return self.plan.stages[stage].output_specs
        return [s for s in self.plan.stages[stage].input_specs if s.dtype.is_inexact]

    def take(self, result: Result | None) -> list[Any]:
        """Take the tensors of another stage's result."""
        if result in self.coming:
            return [message.tensor() for message in self.coming.pop(result)]
        return self.here.pop(result, [])

    def forward(self, action: Action) -> None:
        """Run a microbatch forward through a stage."""
        stage, number = self.plan.stages[action.stage], action.microbatch
        operands = [x.detach() for x in self.take(action.operand(len(self.plan.stages)))]
        if is_grad_enabled():
            for x in operands:
                x.requires_grad_(x.dtype.is_inexact)
        arguments = [self.parts[number][i] for i in stage.arguments]
        out = self.plan.modules[action.stage](*arguments, *operands)
        if action.reader(len(self.plan.stages)) is not None:
            check_outputs(action, stage.output_specs, out)
            self.here[action.result] = list(out)
        elif self.loss is None:
            self.scores[number] = out
        else:
            loss = self.loss(out, self.targets[number]) / len(self.parts)
            self.total = loss.detach() if self.total is None else self.total + loss.detach()
            out = (loss,)
        self.alive[action.result[1:]] = operands, [*out] if self.loss is not None else []
        eval()

    def backward(self, action: Action) -> None:
        """Run a microbatch's cotangents back through a stage; adds to the parameters' gradients."""
        operands, out = self.alive.pop(action.result[1:])
        source = action.operand(len(self.plan.stages))
        tracked = [x for x in out if x.dtype.is_inexact]
        cotangents = self.take(source) if source else [None] * len(tracked)
        pairs = zip(tracked, cotangents, strict=True)
        pairs = [(x, g) for x, g in pairs if x.tape_entry is not None]
        if pairs:
            backward([x for x, _ in pairs], [g for _, g in pairs])
        moved = [x for x in operands if x.dtype.is_inexact]
        if action.reader(len(self.plan.stages)) is not None:
            self.here[action.result] = [x * 0 if x.grad is None else x.grad for x in moved]
        eval()


def check_outputs(action: Action, specs: list[Spec], out: tuple[Tensor, ...]) -> None:
    """Raise unless a stage's results have the specs that the next one expects."""
    results = [x.spec for x in out]
    if results != specs:
        expected = f"stage {action.stage} to give {', '.join(map(str, specs))}"
        fix = "Let what it passes on not depend on values."
        got = f"{', '.join(map(str, results))} for microbatch {action.microbatch}"
        raise ShapeError("pipeline", expected, got, fix)
