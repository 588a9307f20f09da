"""Faulty kernel texts of cards, where the C compiler refuses the kernels of a Program."""

import warnings

from glasshouse.base import BackendError
from glasshouse.base.flags import flags
from glasshouse.compile.building import toolchain
from glasshouse.compile.building.toolchain import PRELUDE, CompileError, CompilerFailed, DiskFull
from glasshouse.compile.kernels.c_text import (
    OPERANDS,
    CardCall,
    call_of_node,
    compute_type,
    faults,
    is_written,
    kernel_of,
    text_of_call,
)
from glasshouse.compile.kernels.kernel_cache import fixed, forms_of, name_of, sizes_of
from glasshouse.compile.planning.plan import ProgramPlan
from glasshouse.compile.programs.code import assemble
from glasshouse.graph.graph import Graph
from glasshouse.ops import BUILT_IN

MOST_OF_MESSAGE = 600  # characters of the compiler's message


def find_faults(graph: Graph) -> list[CardCall]:
    """Find the calls in a graph whose kernel text does not compile; from now on they are steps of
    the host. Only texts of users' cards are tried, each with the helpers of those before it.

    Raises: BackendError for the first of them, where `strict` is set
    """
    try:
        toolchain.compile_one(PRELUDE)
    except CompileError:  # nothing compiles: no text is at fault
        return []
    calls = {call_of_node(n): None for n in graph.nodes if n.op not in BUILT_IN and is_written(n)}
    faulty, helpers = [], ""
    for call in calls:
        text = kernel_of(call.card).helpers.strip()
        more = helpers if text in helpers else f"{helpers}{text}\n"
        try:
            toolchain.compile_one(probe(call, more), ("-Werror=implicit-function-declaration",))
        except DiskFull:
            raise
        except CompileError as error:
            report(call, str(error))
            faulty.append(call)
        else:
            helpers = more
    return faulty


def explained(error: CompileError, graph: Graph) -> CompileError:
    """Add the names of the refused kernels to the error, if the compiler's message has them."""
    if not isinstance(error, CompilerFailed):
        return error
    plan = ProgramPlan(graph)
    steps, dialect = assemble(plan).steps, plan.target.dialect
    failed = []
    for i, kernel in plan.sources.items():
        sizes = sizes_of(kernel, steps[i].args)
        if name_of(fixed(*forms_of(kernel, sizes, sizes)[0]), dialect) in error.output:
            failed.append(i)
    infos = plan.step_infos() if failed else []
    names = ", ".join(f"kernel {i}, {infos[i].name}" for i in failed)
    return CompilerFailed(f"{names}: {error}", error.output) if names else error


def probe(call: CardCall, helpers: str) -> str:
    """Write a C file with the text of a call alone.

    Raises: CompileError for a text that cannot be filled in
    """
    names = [*OPERANDS, *(f"x{i}" for i in range(len(OPERANDS), len(call.operands)))]
    names = names[: len(call.operands)]
    pairs = zip(map(compute_type, call.operands), names, strict=True)
    return (
        f'{PRELUDE}#line 1 "helpers of {call.card}"\n{helpers}\n'
        f'#line 1 "kernel text of {call.card}"\n'
        f"{compute_type(call.result)} probe({', '.join(f'{c} {name}' for c, name in pairs)}) "
        f"{{ return {text_of_call(call, names)}; }}\n"
    )


def report(call: CardCall, message: str) -> None:
    kernel, dtype = kernel_of(call.card), call.operands[-1].name
    text = kernel.template(call.operands, call.result)
    faults[call] = f"its kernel text does not compile: {message[:MOST_OF_MESSAGE]}"
    where, fix = f"kernel text of {call.card}", "Mend the card's kernel, or leave it out."
    if flags.strict:
        del faults[call]  # to be tried again
        raise BackendError(where, f"C that compiles for {dtype}", f"{text!r}: {message}", fix)
    warnings.warn(
        f"glasshouse: {call.card} of {dtype} is computed on the host, by its reference: its kernel "
        f"text {text!r} does not compile ({message[:MOST_OF_MESSAGE]}). {fix}",
        stacklevel=2,
    )
