"""Networks inside packages, run by our importer and by onnxruntime on the same real inputs.

pip download --no-deps rapidocr==3.10.* silero-vad==6.2.* magika==1.0.* basic-pitch==0.4.* \
    ddddocr==1.6.* -d FOLDER
PYTHONPATH=src python tools/judges/onnx_networks.py FOLDER [--speech FILE.wav] [--name PART]

FOLDER has the wheels, or their files. Inputs: a picture with text, speech (or vowels that are
computed), the bytes of this file, a chord. Ends with 1 if outputs differ by more than 1e-4; of
networks that quantise while they run, by more than a quantum may turn: their best letters have to
be the same. Needs onnx, onnxruntime, pillow."""

import argparse
import sys
import tempfile
import wave
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from PIL import Image, ImageDraw, ImageFont

import glasshouse as gh

MOST = 1e-4
QUANTISED = "DynamicQuantizeLinear"


def picture(width: int, height: int, text: str) -> np.ndarray:
    """Black letters on white, (H, W, 3) in 8 bits."""
    image = Image.new("RGB", (width, height), "white")
    font = ImageFont.load_default(max(12, height * 2 // 3))
    ImageDraw.Draw(image).text((8, height // 8), text, "black", font)
    return np.asarray(image)


def image(width: int, height: int, text: str) -> np.ndarray:
    """A picture as (1, 3, H, W) from -1 to 1."""
    return (picture(width, height, text).astype(np.float32) / 127.5 - 1).transpose(2, 0, 1)[None]


def vowels(rate: int = 16_000) -> np.ndarray:
    """A second of pulses through two resonances, which change."""
    t = np.arange(rate) / rate
    pulses = (np.sin(2 * np.pi * 110 * t) > 0.97).astype(float)
    formants = [500 + 200 * np.sin(3 * t), 1500 + 400 * np.cos(2 * t)]
    tones = sum(np.sin(2 * np.pi * np.cumsum(f) / rate) for f in formants)
    return (0.3 * tones * np.convolve(pulses, np.exp(-np.arange(160) / 40), "same")).astype("f")


def speech(path: str | None) -> np.ndarray:
    """Samples of a file of 16 bits, at 16 kHz; or vowels."""
    if path is None:
        return vowels()
    with wave.open(path) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16) / np.float32(32768)
        return np.repeat(samples, 16_000 // file.getframerate()).astype(np.float32)


def chord(length: int, rate: int = 22_050) -> np.ndarray:
    """Three notes with harmonics."""
    t = np.arange(length) / rate
    notes = [220 * k * 2 ** (n / 12) for n in (0, 4, 7) for k in (1, 2, 3)]
    return sum(np.sin(2 * np.pi * f * t) / f * 20 for f in notes).astype(np.float32)


def bytes_of_file(count: int = 1024) -> np.ndarray:
    """First and last bytes of this file, as magika reads them."""
    data = np.frombuffer(Path(__file__).read_bytes().strip(), np.uint8).astype(np.int32)
    return np.concatenate([data[:count], data[-count:]])[None]


def inputs_of(name: str, samples: np.ndarray) -> dict[str, Any]:
    """Inputs by name for a network."""
    if "_det_" in name:
        return {"x": image(320, 160, "A house of glass")}
    if "_rec_" in name or "_cls_" in name:
        return {"x": image(192 if "_cls_" in name else 320, 48, "reads text")}
    if name == "common_det.onnx":
        return {"images": picture(416, 416, "abc").transpose(2, 0, 1)[None].astype(np.float32)}
    if name.startswith("common"):
        grey = np.asarray(Image.fromarray(picture(160, 64, "gh26")).convert("L"), np.float32)
        return {"input1": (grey / 127.5 - 1)[None, None]}
    if name == "nmp.onnx":
        return {"serving_default_input_2:0": chord(43844)[None, :, None]}
    if name == "model.onnx":
        return {"bytes": bytes_of_file()}
    state = np.zeros((2, 1, 128), np.float32)
    values = {"input": samples[None, 4000:4576], "state": state, "sr": np.array(16_000)}
    return {**values, "h": state[:1], "c": state[:1]}


def as_tuple(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


def row(path: Path, samples: np.ndarray) -> tuple[list[str], bool]:
    """The cells of a network's line, and whether its outputs agree."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(str(path), options)
    values = inputs_of(path.name, samples)
    values = {x.name: values[x.name] for x in session.get_inputs()}
    wanted = session.run(None, values)
    network = gh.onnx.load(path)
    with gh.no_grad():
        results = [x.numpy() for x in as_tuple(network(**values))]
        captured = gh.optimize(lambda: network(**tensors))
        tensors = {name: gh.asarray(x) for name, x in values.items()}
        again = [x.numpy() for x in as_tuple(captured())]
    pairs = [*zip(results, wanted), *zip(again, wanted)]
    worst = max(float(np.abs(a.astype(float) - b).max()) for a, b in pairs)
    best = all((a.argmax(-1) == b.argmax(-1)).all() for a, b in pairs)
    kinds = {step.node.op_type for step in network.run.graph.steps}
    fits = best if QUANTISED in kinds else worst <= MOST
    count = sum(p.size for p in network.parameters())
    cells = [path.name, str(len(network.run.graph.steps)), f"{count:,}", f"{worst:.1e}"]
    return [*cells, "best equal" if best else "best differ"], fits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--speech")
    parser.add_argument("--name", default="", help="run networks whose name has this alone")
    options = parser.parse_args()
    samples = speech(options.speech)
    wrong = 0
    with tempfile.TemporaryDirectory() as unpacked:
        for wheel in options.folder.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                names = [n for n in archive.namelist() if n.endswith(".onnx")]
                archive.extractall(Path(unpacked, wheel.stem), names)
        paths = [*options.folder.rglob("*.onnx"), *Path(unpacked).rglob("*.onnx")]
        for path in sorted({p.name: p for p in paths if options.name in p.name}.values()):
            cells, fits = row(path, samples)
            wrong += not fits
            widths = (40, 6, 12, 9, 12)
            line = " ".join(cell.ljust(width) for cell, width in zip(cells, widths))
            print(line + ("" if fits else " DIFFERS"), flush=True)
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
