"""Writes docs/reference/jax_names.md: JAX's public names, which of them `glasshouse.jax` has, and
what the judge found that compares them.

    python tools/documents/make_jax_names_table.py            # write the page
    python tools/documents/make_jax_names_table.py --check    # whether the page is up to date

JAX's names and the results of the comparison are read from docs/reference/jax_names.json, which
`tools/judges/jax_names.py` writes where JAX is. Families that mean nothing here are taken out with
their reason; each other name that is missing has one."""

import fnmatch
import importlib
import json
import runpy
import sys
from collections import Counter
from pathlib import Path

names_page = runpy.run_path(str(Path(__file__).with_name("names_page.py")))
lines_of, write_or_check = (names_page[name] for name in ("lines_of", "write_or_check"))
REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
FOUND, PAGE = REFERENCE / "jax_names.json", REFERENCE / "jax_names.md"

WITHOUT = {
    "primitives as objects": (
        "cards are `gh.primitives`",
        "*_p PrecisionLike Precision AccuracyMode Tolerance RoundingMethod RandomAlgorithm "
        "DotAlgorithm* *DimensionNumbers GatherScatterMode FftType float0 ad typeof",
    ),
    "devices and sharding": (
        "one device at a time, chosen by the backend; ranks are `gh.distributed`'s",
        "Device NamedSharding P Shard *device* *mesh* host_* process_* local_* make_array_* pmap "
        "shard_map smap reshard transfer_guard* with_sharding_constraint all_gather all_to_all "
        "axis_index axis_size pmax pmean pmin ppermute psum* pshuffle pswapaxes pbroadcast pcast "
        "precv psend ragged_all_to_all after_all create_token copy_to_host_async jax2tf* "
        "platform_dependent get_scaled_dot_general_config",
    ),
    "settings and tracing": (
        "flags are GH_…, and programs are looked at by `gh.explain` and `gh.profile`",
        "config check_tracer_leaks checking_leaks clear_caches debug_* default_matmul_precision "
        "default_prng_impl effects_barrier enable_* ensure_compile_time_eval explain_cache_misses "
        "legacy_prng_key live_arrays log_compiles make_user_context no_execution no_tracing "
        "numpy_dtype_promotion numpy_rank_promotion print_environment_info allow_f16_reductions "
        "remove_size_one* softmax_custom_jvp thread_guard threefry_partitionable memory "
        "array_garbage_collection_guard checkpoint_policies named_scope composite dce_sink "
        "optimization_barrier shape_as_value key_impl random_gamma_p",
    ),
    "references that change": (
        "tensors are written to by `x[i] = y`",
        "Ref new_ref free_ref empty_ref freeze ds",
    ),
    "narrow dtypes": (
        "dtypes are those of the Array API, and bfloat16 and float16",
        "float4_* float8_* int1 int2 int4 uint1 uint2 uint4 scaled_matmul scaled_dot* ragged_dot*",
    ),
    "classes of dtypes, files and printing": (
        "NumPy's hierarchy of dtypes, its files and its printing are NumPy's own",
        "ComplexWarning character complexfloating flexible floating generic inexact integer number "
        "object_ signedinteger unsignedinteger ufunc frompyfunc array_repr array_str fromfile "
        "fromiter fromstring get_printoptions set_printoptions printoptions save savez load "
        "c_ r_ s_ "
        "index_exp mgrid ogrid dtype complex_ issubdtype einsum_path",
    ),
}
MISSING = {
    "pure_callback fwd_and_bwd": "Python inside of a Program: `gh.autograd.Function`",
    "rng_bit_generator rng_uniform": "`random.bits`, `random.uniform`",
    "custom_linear_solve custom_root": "`custom_vjp` says the same",
    "igamma_grad_a random_gamma_grad": "derivatives by the shape are not written yet",
    "scatter* gather* index_take": "`x.at[i]` and `x[i]`",
    "conv_*shape* reduce_window_shape_tuple conv_general_permutations": "`eval_shape`",
    "conv_general_dilated_local": "no kernel for filters that differ by place",
}


def family_of(name: str):
    for family, (_, patterns) in WITHOUT.items():
        if any(fnmatch.fnmatchcase(name, p) for p in patterns.split()):
            return family
    return None


def reason_of(space: str, name: str):
    for patterns, reason in MISSING.items():
        if any(fnmatch.fnmatchcase(name, p) for p in patterns.split()):
            return reason
    return None


def sorted_names(space: str, names: list[str]):
    """(there, missing, {family: names without}) of a space."""
    ours = importlib.import_module(space.replace("jax", "glasshouse.jax", 1))
    there, missing, without = [], [], {}
    for name in names:
        if hasattr(ours, name):
            there.append(name)
        elif family := family_of(name):
            without.setdefault(family, []).append(name)
        else:
            missing.append(name)
    return there, missing, without


def page() -> str:
    """The whole page."""
    data = json.loads(FOUND.read_text())
    parts = {space: sorted_names(space, names) for space, names in data["names"].items()}
    states = Counter(state for state, _ in data["calls"].values())
    said = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    lines = [
        "# JAX's names",
        "",
        "Made by `tools/documents/make_jax_names_table.py`: which public names of JAX "
        f"{data['version']} `glasshouse.jax` has.",
        "Each has JAX's meaning: `tools/judges/jax_names.py` calls functions of both on the same",
        "arguments and compares shapes, kinds of dtypes and values. Of "
        f"{states.total()} names: {said}.",
        "",
        *lines_of(parts, reason_of, WITHOUT),
    ]
    others = [(n, s, how) for n, (s, how) in data["calls"].items() if s not in ("same", "missing")]
    if others:
        lines += ["## Compared, and not the same", ""]
        lines += [f"- `{name}`: {state}. {how}" for name, state, how in others]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page(), Path(__file__).name))
