"""`glasshouse export`: a model as an ONNX file, or as a folder of C."""

import inspect
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

import glasshouse as gh
from glasshouse.analyze.step import is_torch_module
from glasshouse.apps import find_app, load_app
from glasshouse.apps.run import NOTES
from glasshouse.base.errors import (
    CaptureError,
    DTypeError,
    OptionError,
    ShapeError,
    TransformError,
    type_name,
)
from glasshouse.cli.analyze import in_script
from glasshouse.cli.command import (
    Command,
    existing_file,
    names_file,
    progress,
    script_file,
    user_function,
)
from glasshouse.cli.onnx_files import ENDING, shapes_of
from glasshouse.cli.train_digits import CHECKPOINT, make_network
from glasshouse.interop import load_checkpoint
from glasshouse.onnx.network import Network
from glasshouse.text import load_model

WHERE, WEIGHTS = "export", ".safetensors"
REFUSALS = (CaptureError, DTypeError, ShapeError, TransformError)  # of what is exported


def trained_run(path: Path) -> Any:
    """The network of a run of `glasshouse train`: of its folder, or of a checkpoint in it.

    Raises: OptionError for weights whose network is not known
    """
    folder = path if path.is_dir() else path.parent
    if (folder / NOTES).exists():
        name = json.loads((folder / NOTES).read_text()).get("app", "")
        model = load_app(find_app(name), folder)[2]
        if path != folder:
            load_checkpoint(path, model=model)
        return model
    file = existing_file(
        WHERE, "a checkpoint", str(folder / CHECKPOINT if path == folder else path)
    )
    metrics = gh.load(file).get("metrics")
    if not isinstance(metrics, dict) or set(metrics) != {"recipe", "history"}:
        fix = f"Name what makes it: glasshouse export MODULE:FUNCTION --weights {file}."
        raise OptionError(WHERE, "a model", f"{str(file)!r}, which has weights alone", fix)
    model = make_network()
    load_checkpoint(file, model=model)
    return model


def model_of(name: str) -> tuple[Any, list[Any] | None]:
    """(a model, its inputs where it says them) of a name on the command line."""
    path = Path(name)
    if name.endswith(ENDING):
        return gh.onnx.load(existing_file(WHERE, "an ONNX file", name)), None
    if path.is_dir() and not (path / "config.json").exists() and not [*path.glob("*.gguf")]:
        return trained_run(path), None
    if path.suffix == WEIGHTS:
        return trained_run(existing_file(WHERE, "a checkpoint", name)), None
    if path.is_dir() or path.suffix == ".gguf":
        return load_model(path), None
    if ":" in name and not path.exists():
        value = user_function(WHERE, name)
        value = value if isinstance(value, gh.nn.Module) else value()
    elif names_file(name):
        value = in_script(script_file(WHERE, name))
    else:
        fix = "Name an ONNX file, a run, a GGUF file, a script, or module:function."
        raise OptionError(WHERE, "a model", repr(name), fix)
    if not isinstance(value, tuple):
        return value, None
    inputs = value[1]
    return value[0], list(inputs) if isinstance(inputs, tuple | list) else [inputs]


def input_names(model: Any) -> list[str]:
    """Names of the inputs that a call has to have."""
    if isinstance(model, Network):
        return list(model.input_names)
    forward = model.forward if isinstance(model, gh.nn.Module) else model
    kinds = inspect.Parameter
    return [
        p.name
        for p in inspect.signature(forward).parameters.values()
        if p.default is kinds.empty and p.kind is kinds.POSITIONAL_OR_KEYWORD
    ]


def apart(text: str) -> tuple[str, str]:
    """(input and sizes, dtype or ""): a name may have colons, too."""
    before, _, dtype = text.rpartition(":")
    return (before, dtype) if "=" in before else (text, "")


def examples_of(model: Any, own: list[Any] | None, sizes: Iterable[str]) -> list[Any]:
    """Inputs for a model: the model's own, or zeros of the sizes.

    Raises: OptionError for names that are no inputs, and inputs of which nothing is known
    """
    texts = [apart(text) for text in sizes]
    shapes = shapes_of(text for text, _ in texts)
    dtypes = {text.rpartition("=")[0]: dtype for text, dtype in texts if dtype}
    names = input_names(model)
    for name in shapes:
        if name not in names:
            raise OptionError("--sizes", f"one of {names}", repr(name), "Name an input.")
    if isinstance(model, Network):
        return model.examples(shapes)
    inputs = list(own or []) + [None] * (len(names) - len(own or []))
    for name, shape in shapes.items():
        before = inputs[names.index(name)]
        dtype = dtypes.get(name) or getattr(before, "dtype", "float32")
        inputs[names.index(name)] = gh.zeros(shape, dtype=dtype)
    missing = next((name for name, x in zip(names, inputs) if x is None), None)
    if missing is not None:
        fix = f"Say its sizes: --sizes {missing}=1x3x224x224, or 1x16:int64 for whole numbers."
        raise OptionError(WHERE, f"inputs {names}", f"no sizes of {missing!r}", fix)
    return inputs


def choices_of(sizes: Iterable[str]) -> list[list[str]]:
    """Sizes of all inputs, of texts in which an input may stand several times: its first sizes,
    its second ones. An input that has fewer keeps the last."""
    texts: dict[str, list[str]] = {}
    for text in sizes:
        texts.setdefault(text.rpartition("=")[0], []).append(text)
    count = max(map(len, texts.values()), default=1)
    return [[own[min(i, len(own) - 1)] for own in texts.values()] for i in range(count)]


def axes_of(texts: Iterable[str]) -> dict[str, dict[int, str]]:
    """Axes that vary, by input, of texts such as x=0:batch.

    Raises: OptionError for another text
    """
    axes: dict[str, dict[int, str]] = {}
    for text in texts:
        name, _, rest = text.rpartition("=")
        for part in rest.split(","):
            axis, _, size = part.partition(":")
            if not name or not axis.isdigit() or not size:
                fix = "Give an input, an axis and a name for its size."
                raise OptionError("--dynamic", "INPUT=AXIS:NAME, as x=0:batch", repr(text), fix)
            axes.setdefault(name, {})[int(axis)] = size
    return axes


@click.command(cls=Command, name="export", short_help="Write a MODEL as an ONNX file or as C.")
@click.argument("name", metavar="MODEL")
@click.option("--out", required=True, type=click.Path(path_type=Path),
              help="A file that ends in .onnx, or a folder for C.")  # fmt: skip
@click.option("--sizes", multiple=True, metavar="INPUT=SIZES[:DTYPE]",
              help="Of an input: input=1x3x64x64, tokens=1x16:int64; several for C.")  # fmt: skip
@click.option("--dynamic", multiple=True, metavar="INPUT=AXIS:NAME",
              help="An axis of an ONNX file's input whose size may vary: x=0:batch.")  # fmt: skip
@click.option("--weights", type=click.Path(path_type=Path), help="Weights of a MODULE:FUNCTION.")
@click.option("--name", "program", default="predict", show_default=True, help="Of the C program.")
def export_command(
    name: str,
    out: Path,
    sizes: tuple[str, ...],
    dynamic: tuple[str, ...],
    weights: Path | None,
    program: str,
) -> None:
    """Write a MODEL for inference as an ONNX file, or as a folder of C that needs no Python.

    MODEL is an ONNX file, a run of `glasshouse train` (its folder or a checkpoint), a GGUF file, a
    folder of transformers, a script that has `model` and `inputs`, or module:function, which
    returns a model, perhaps with its inputs."""
    to_onnx = out.suffix == ENDING
    axes = axes_of(dynamic)
    if axes and not to_onnx:
        fix = "Leave it out, or write an ONNX file."
        raise OptionError("--dynamic", f"a file that ends in {ENDING}", str(out), fix)
    try:
        with progress(f"{name}: loading"):
            model, inputs, *more = load(name, weights, sizes)
        with progress(f"{out}: writing"):
            if to_onnx and more:
                fix = "Name the axis that varies: --dynamic x=0:batch."
                raise OptionError("--sizes", "one choice for an ONNX file", len(more) + 1, fix)
            if to_onnx:
                write_onnx(model, inputs, out, axes)
            else:
                gh.export_program(model, out, *inputs, name=program, more=more)
    except REFUSALS as error:
        raise click.ClickException(str(error)) from error
    show_written(out, program, to_onnx)


def load(name: str, weights: Path | None, sizes: Iterable[str]) -> list[Any]:
    """A model in eval mode, then examples of its inputs for each choice of sizes.

    Raises: OptionError for an object that is not a model of ours
    """
    model, own = model_of(name)
    if not callable(model) or is_torch_module(model):
        got, fix = type_name(model), "Export PyTorch's by torch.onnx.export, and name the file."
        raise OptionError(WHERE, f"{name} to be a Module, or to return one", got, fix)
    if weights is not None:
        values = gh.load(existing_file("--weights", "a file", str(weights)))
        model.load_state_dict(values.get("model", values))
    if isinstance(model, gh.nn.Module):
        model.eval()
    choices = choices_of(sizes)
    return [model, *(tuple(map(gh.asarray, examples_of(model, own, x))) for x in choices)]


def write_onnx(model: Any, inputs: tuple[Any, ...], out: Path, axes: dict[str, Any]) -> None:
    """Write an ONNX file; a network of one keeps the names of its inputs and outputs."""
    names: dict[str, Any] = {}
    if isinstance(model, Network):
        names = {"input_names": model.input_names, "output_names": model.output_names}
    gh.onnx.export(model, inputs, out, dynamic_axes=axes, **names)


def show_written(out: Path, program: str, to_onnx: bool) -> None:
    """Show the written files, and the command to run or build them."""
    if to_onnx:
        files = [path for path in (out, out.with_name(out.name + ".data")) if path.exists()]
        for path in files:
            click.echo(f"{path}  {path.stat().st_size:,} bytes")
        click.echo(f"Run it: glasshouse run {out}")
        return
    manifest = json.loads((out / f"{program}.json").read_text())
    for size in manifest["sizes"]:
        for kind in ("inputs", "outputs"):
            for x in size[kind]:
                click.echo(f"{kind[:-1]:<7} {x['name']}  {x['dtype']}{x['shape']}")
    memory = manifest["block_bytes"]
    click.echo(f"In {out}: {program}.c, its header, weights and manifest; {memory:,} bytes to run.")
    click.echo(f"Build it: cmake -S {out} -B build && cmake --build build")
