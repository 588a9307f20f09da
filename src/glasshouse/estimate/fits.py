"""Whether a training step fits a device: composed of analyses of the step, with checkpoints, in
parts, narrower and with ZeRO. Nothing is allocated."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from glasshouse.analyze.machine import MachineProfile
from glasshouse.analyze.step import usual_loss
from glasshouse.analyze.torch_models import is_torch_module
from glasshouse.base.errors import OptionError, check_least, type_name
from glasshouse.base.units import parse_bytes
from glasshouse.base.upper_storeys import offered
from glasshouse.estimate.answer import FitAnswer, StepChange
from glasshouse.estimate.subject import OwnSubject, StepSubject, StepVariant, VariantCosts
from glasshouse.nn.module import Module
from glasshouse.optim import Optimizer

NARROW = "bfloat16"
STAGES = (1, 2, 3)  # of ZeRO: the optimizer's state is shared out, gradients too, parameters too


def fits(
    model: Any,
    optimizer: Any,
    batch: Any,
    device_memory: int | str,
    *,
    loss: Callable[..., Any] | None = None,
    convention: str | None = None,
    autocast: str | None = None,
    ranks: int = 8,
    changes: bool | None = None,
    machine: MachineProfile | str = "cpu2",
) -> FitAnswer:
    """Whether a training step fits a device, what takes its memory, and what to change if it does
    not. Nothing is allocated.

    model          a Module, a torch.nn.Module, or a configuration of Hugging Face's (an object or a
                   dict with "model_type"), with or without contents
    optimizer      "sgd", "adam" or "adamw", an optimizer over the model's parameters, or a function
                   that makes one of them
    batch          the model's input, then targets, as `gh.analyze.step` takes them; of a
                   configuration also a number of examples, or (examples, tokens)
    device_memory  bytes, or a text such as "24 GiB"
    loss           function (output, *targets) -> scalar; by default cross-entropy where there are
                   targets, else the model's own
    convention     of PyTorch's models: "torch" for eager, which is the default, "exact" for
                   torch.compile(backend="glasshouse"), "captured" for gh.optimize
    autocast       "bfloat16" or "float16" for mixed precision
    ranks          how many ranks ZeRO shares out among, each with this batch; 1: none
    changes        whether to look for changes; by default where the step does not fit
    machine        a machine profile, for the analysis's times

    The peak is that of `gh.analyze.step`, without the memory of a driver and an allocator. Each
    change is analysed as a step; of PyTorch's models, ZeRO divides sizes, and says "about".

    Units: bytes
    Raises: OptionError for bad arguments, BackendError where transformers is missing or a step
        reads a value
    Source: ZeRO: Rajbhandari et al. 2020, arXiv:1910.02054
    Example:
        >>> import glasshouse as gh
        >>> with gh.meta():
        ...     model = gh.nn.Linear(50_000, 50_000)  # 10 GB of weights, none allocated
        >>> data = [((8, 50_000), "float32")] * 2
        >>> answer = fits(model, "adamw", data, "32 GiB", loss=gh.nn.functional.mse_loss)
        >>> bool(answer)
        False
        >>> [change.name for change in answer.changes if change.fits]
        ['weights in bfloat16', 'ZeRO 1 on 8 ranks', 'ZeRO 2 on 8 ranks', 'ZeRO 3 on 8 ranks']
    """
    device_bytes = int(parse_bytes("fits", device_memory))
    check_least("fits", "ranks", ranks, 1, "With 1 there is no ZeRO.")
    options = {"machine": MachineProfile.load(machine), "autocast": autocast}
    subject = subject_of(model, optimizer, batch, loss, convention, options)
    costs = subject.costs(StepVariant())
    needs_changes = costs.peak_bytes > device_bytes if changes is None else changes
    proposed = list(changes_of(subject, device_bytes, ranks)) if needs_changes else []
    return FitAnswer(*costs[:2], device_bytes, proposed, subject.words(), costs.analysis)


def is_config(x: Module) -> bool:
    """Whether it is a configuration of Hugging Face's."""
    if isinstance(x, Mapping):
        return "model_type" in x
    return hasattr(x, "model_type") and hasattr(x, "to_dict")


def subject_of(
    model: Module,
    optimizer: Optimizer,
    batch: list[Any],
    loss: Any,
    convention: str | None,
    options: dict[Any, Any],
) -> StepSubject:
    """The step to analyse, by the kind of its model.

    Raises: OptionError for an object that is not a model
    """
    if is_config(model):
        model, batch = offered("torch", "build")(model, batch)
    if is_torch_module(model):
        options = {**options, "convention": convention or "torch"}
        maker = offered("torch", "subject")
    elif isinstance(model, Module):
        if convention not in (None, "exact"):
            fix = "Leave it out."
            raise OptionError("fits", "no other convention for a Module", repr(convention), fix)
        maker = OwnSubject
    else:
        expected = "a Module, a torch.nn.Module or a configuration of Hugging Face's"
        raise OptionError("fits", expected, type_name(model), "Pass the model.")
    loss = usual_loss(model, batch) if loss is None else loss
    return maker(model, loss, optimizer, batch, options)


def changes_of(subject: StepSubject, device_bytes: int, ranks: int) -> Iterator[StepChange]:
    """Each change alone, then those that one device can make together, then with ZeRO."""
    asker = ChangeAnalysis(subject, device_bytes)
    alone = [asker.change("checkpoints", subject.checkpoint_code, StepVariant(checkpoints=True))]
    if subject.batch > 1:
        alone.append(asker.accumulation())
    if not subject.options["autocast"]:
        variant = StepVariant(autocast=NARROW)
        alone.append(asker.change(f"autocast {NARROW}", subject.autocast_code, variant))
    narrow = StepVariant(dtype=NARROW)
    alone.append(asker.change(f"weights in {NARROW}", f"model.to({NARROW})", narrow))
    for stage in STAGES if ranks > 1 else ():
        alone.append(asker.zero(StepVariant(stage=stage, ranks=ranks), f"ZeRO {stage}"))
    yield from alone
    if any(change.fits for change in alone):
        return
    batch = 1 if subject.batch > 1 else None
    together = StepVariant(batch=batch, checkpoints=True, dtype=NARROW)
    what = f"checkpoints, weights in {NARROW}{', micro-batches of 1' if batch else ''}"
    last = asker.change("all on one device", what, together)
    yield last
    if ranks > 1 and not last.fits:
        stage = STAGES[-1]
        yield asker.zero(StepVariant(batch, True, None, NARROW, stage, ranks), f"all, ZeRO {stage}")


class ChangeAnalysis:
    """Analyses changes of a step."""

    def __init__(self, subject: StepSubject, device_bytes: int) -> None:
        self.subject = subject
        self.device_bytes = device_bytes

    def change(self, name: str, how: str, variant: StepVariant) -> StepChange:
        """The change to a variant. Where a model cannot make it, the result has the reason."""
        try:
            costs = self.subject.costs(variant)
        except Exception as error:
            problem = f"not possible: {error}".splitlines()[0]
            return StepChange(name, how, None, {}, False, problem=problem)
        return self.change_of(name, how, costs)

    def change_of(self, name: str, how: str, costs: VariantCosts) -> StepChange:
        """A change whose costs are known."""
        fitting = costs.peak_bytes <= self.device_bytes
        return StepChange(name, how, costs.peak_bytes, costs.by_kind, fitting, costs.is_about)

    def zero(self, variant: StepVariant, name: str) -> StepChange:
        """The change to a stage of ZeRO."""
        how = self.subject.zero_code.format(stage=variant.stage)
        return self.change(f"{name} on {variant.ranks} ranks", how, variant)

    def accumulation(self) -> StepChange:
        """The change to the largest micro-batch that fits, of halves of the batch; else to one of a
        single example."""
        sizes = [1]
        while sizes[-1] * 2 < self.subject.batch:
            sizes.append(sizes[-1] * 2)
        tried = {1: self.micro_batches_of(1)}
        low, high = 0, len(sizes) if tried[1].fits else 1
        while high - low > 1:
            middle = (low + high) // 2
            tried[sizes[middle]] = self.micro_batches_of(sizes[middle])
            low, high = (middle, high) if tried[sizes[middle]].fits else (low, middle)
        return tried[sizes[low]]

    def micro_batches_of(self, examples: int) -> StepChange:
        """The change to micro-batches of so many examples."""
        times = -(-self.subject.batch // examples)
        how = f"{times} of (loss / {times}).backward() before a step"
        return self.change(f"micro-batches of {examples}", how, StepVariant(batch=examples))
