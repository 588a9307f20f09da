"""Builds folders of C, and runs their programs by ctypes."""

import ctypes
import importlib.util
import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.building import toolchain
from glasshouse.standalone.folder import OPTIONS
from glasshouse.targets import PLAIN, use_target

SANITIZERS = "-g -O1 -fsanitize=address,undefined -fno-sanitize-recover=undefined".split()


def sources_of(folder):
    return [str(x) for x in sorted(folder.glob("*.c")) if x.name != "example.c"]


def compile_c(folder, *options, compiler=None, output="libprograms.so"):
    """Build with the C compiler; the path of what it makes."""
    command = [*(compiler or toolchain.find_compiler()), "-std=gnu11", *OPTIONS.split(), *options]
    subprocess.run([*command, "-o", str(folder / output), "-lm"], check=True, capture_output=True)
    return folder / output


def library_of(folder, *options):
    """The shared library of a folder, for this processor as kernels are compiled for it."""
    native = [x for x in toolchain.OPTIONS if x.startswith("-m")]
    return compile_c(folder, *native, "-shared", "-fPIC", *sources_of(folder), *options)


def loaded(folder, name, library=None):
    """A program through the folder's own example in Python, with the folder's state."""
    spec = importlib.util.spec_from_file_location("example", folder / "example.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    program = example.Program(library or library_of(folder), name)
    program.load(folder / f"{name}.safetensors")
    return program


def plainly():
    """Context: Programs are those that a folder holds."""
    return use_target(PLAIN)


def always():
    return flags.override(compile="always")


def state_of(program, name, shape, dtype=np.float32):
    """A copy of the state of this name."""
    spec, data = ctypes.c_void_p(), ctypes.c_void_p()
    where = ctypes.byref(spec), ctypes.byref(data)
    program.check(program.library.gh_state(program.context, name.encode(), *where))
    count = int(np.prod(shape, dtype=int))
    kind = ctypes.c_char * (count * np.dtype(dtype).itemsize)
    return np.frombuffer(bytes(kind.from_address(data.value)), dtype).reshape(shape)


def check_a_hundred_steps(folder, trained, batches, program):
    """Whether `trained`, (step, model, optimizer), and a program of its folder, which is closed,
    compute the same bits: losses and then the state. On the way the learning rate changes, and the
    program's state goes through a file."""
    step, model, optimizer = trained
    for i, batch in zip(range(100), batches, strict=False):
        if i == 40:
            optimizer.param_groups[0]["lr"] = 0.003
            program.set("lr", 0.003)
        if i == 60:
            program.save(folder / "later.safetensors")
            program.close()
            program = loaded(folder, "train", folder / "libprograms.so")
            program.load(folder / "later.safetensors")
        loss = step(*map(gh.asarray, batch))
        assert loss.item() == program.run(*batch)[0]
    for key, value in model.state_dict().items():
        if value.dtype is gh.float32:
            result = state_of(program, f"model.{key}", value.shape)
            np.testing.assert_array_equal(result, value.numpy())
    program.close()


def check_threads(folder, library, batch, count):
    """Whether `count` steps give the same losses alone and in four threads, with a context each."""

    def losses(_=None):
        program = loaded(folder, "train", library)
        results = [program.run(*batch)[0].item() for _ in range(count)]
        program.close()
        return results

    wanted = losses()
    with ThreadPoolExecutor(4) as pool:
        assert all(results == wanted for results in pool.map(losses, range(4)))
