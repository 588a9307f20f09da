"""Small generated files in the formats of the applications' data, and their twins in PyTorch."""

import gzip
import importlib.util
import wave
from pathlib import Path

import numpy as np
from PIL import Image

from glasshouse.text import Tokenizer
from glasshouse.text.models import BertConfig, BertModel, save_pretrained

TWINS = Path(__file__).parents[3] / "benchmarks" / "twins"
WORDS = {"ships": "harbour cargo vessel port", "grain": "wheat corn harvest crop"}


def write_digits(folder):
    """60 images of a bar whose place says its class, as rows of numbers."""
    rng = np.random.default_rng(0)
    labels = np.sort(np.arange(60) % 10)
    images = rng.integers(0, 60, (60, 28, 28))
    for image, label in zip(images, labels):
        image[2 * label + 4 : 2 * label + 7] = 255
    rows = [",".join(map(str, [*x.ravel(), y])) for x, y in zip(images, labels)]
    with gzip.open(folder / "mnist_5k.csv.gz", "wt") as file:
        file.write("\n".join(rows) + "\n")
    return {"batch_size": 16, "width": 4, "distort": 0.0, "dropout": 0.0, "lr": 0.01}


def write_news(folder):
    """Texts of two subjects, in the columns of Orange's tables."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 40), ("test", 12)):
        lines = ["Category\tText", "d\tstring", "class\t"]
        for number in range(count):
            label = list(WORDS)[number % 2]
            words = rng.choice([*WORDS[label].split(), "the", "of", "today"], 9)
            lines.append(f"{label}\t{' '.join(words)}")
        (folder / f"reuters-r8-{part}.tab").write_text("\n".join(lines) + "\n")
    return {"batch_size": 8, "rows": 512, "length": 32}


def write_texts_and_encoder(folder):
    """Texts as for textclass, and a small BERT with its tokenizer."""
    settings = write_news(folder)
    texts = (folder / "reuters-r8-train.tab").read_text().splitlines()
    tokenizer = Tokenizer.train(texts, 200, "wordpiece", lowercase=True)
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = BertConfig(vocab_size=len(tokenizer), num_hidden_layers=1, **sizes, **none)
    save_pretrained(BertModel(config), folder)
    tokenizer.save(folder)
    return {"batch_size": 8, "length": settings["length"], "rank": 2, "lr": 0.01}


def write_translations(folder):
    """Aligned lines of two languages."""
    rng = np.random.default_rng(0)
    names = {"red": "rosso", "old": "vecchio", "game": "gioco", "tool": "strumento"}
    for part, count in (("train", 40), ("test", 8)):
        lines = [rng.choice(list(names), 3).tolist() for _ in range(count)]
        sides = [[" ".join(words) for words in lines]]
        sides.append([" ".join(names[word] for word in words) for words in lines])
        for language, side in zip(("en", "it"), sides):
            (folder / f"{part}.{language}").write_text("\n".join(side) + "\n")
    sizes = {"dim": 32, "layers": 1, "vocab": 290, "dropout": 0.0}
    return {"batch_size": 8, "length": 16, "reported": 8, **sizes}


def write_stamps(folder):
    """Disks and bars cut out on backgrounds of one colour: two of each class and two backgrounds,
    so that no file can be missed."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:40, :40]
    shapes = {
        "disks": (rows - 20) ** 2 + (columns - 20) ** 2 < 300,
        "bars": abs(rows - columns) < 9,
    }
    (folder / "backgrounds").mkdir()
    for number in range(2):
        noise = rng.integers(0, 60, (48, 64, 3)) + 40 * number
        Image.fromarray(noise.astype(np.uint8)).save(folder / f"backgrounds/{number}.jpg")
        for name, shape in shapes.items():
            (folder / "stamps" / name).mkdir(parents=True, exist_ok=True)
            pixels = np.zeros((40, 40, 4), np.uint8)
            pixels[shape] = [250, 250 - 200 * (name == "bars"), 100 * number, 255]
            Image.fromarray(pixels).save(folder / f"stamps/{name}/{number}.png")
    return {"batch_size": 8, "scenes": 32, "held_out": 8}


def write_masks(folder):
    """Scenes for segment."""
    sizes = {"side": 32, "most": 2, "width": 4, "depth": 2, "folders": "disks,bars"}
    return {**write_stamps(folder), **sizes}


def write_sound(path, samples, rate=8000):
    """A wav file of 16 bits."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32767).astype("<i2").tobytes())


def spoken(text, rate=8000):
    """A tone for each letter, a pause for each space."""
    times = np.arange(rate // 10) / rate
    tones = [np.sin(2 * np.pi * (300 + 120 * (ord(x) - 97)) * times) * (x != " ") for x in text]
    return np.concatenate([0.5 * tone for tone in tones])


def write_prompts(folder):
    """Words of tones, in folders, and their texts as Asterisk has them."""
    (folder / "digits").mkdir()
    lines = ["; Prompts", "", "beep: [a tone]"]
    words = """aha gab dad fed egg cab bag hag had bed fad gad head beg jag fig bade cafe dice edge
        face gage hide idea jade bead chad deaf each feed aide heed""".split()
    for number, word in enumerate(words):
        name = f"digits/{number}" if number % 2 else word
        write_sound(folder / f"{name}.wav", spoken(f" {word} "))
        lines.append(f"{name}: {word.title()}.")
    with gzip.open(folder / "core-sounds-en.txt.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    sizes = {"dim": 16, "layers": 1, "kernel": 3, "dropout": 0.0, "masks": 0}
    return {"batch_size": 7, "speeds": "1", "lr": 0.01, "errors": "raise", **sizes}


def write_scenes(folder):
    """Scenes for detect."""
    sizes = {"side": 64, "most": 2, "width": 4, "channels": 8, "depth": 1}
    return {**write_stamps(folder), **sizes, "folders": "disks,bars"}


def write_novels(folder):
    """Three texts of a few words."""
    rng = np.random.default_rng(0)
    words = "the ship came to the harbour with corn and went on at night".split()
    for name in ("persuasion", "first", "second"):
        lines = (" ".join(rng.choice(words, 9)) for _ in range(60))
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return {"batch_size": 4, "vocab": 300, "dim": 16, "layers": 1, "length": 16}


SAMPLES = {
    "detect": write_scenes,
    "lm": write_novels,
    "segment": write_masks,
    "imgclass": write_digits,
    "textclass": write_news,
    "asr": write_prompts,
    "embed": write_texts_and_encoder,
    "translate": write_translations,
}
OPTIONAL = {"lm": ("first.txt", "second.txt")}  # files that a run may do without


def load_twin(name):
    """The module of an application's twin in PyTorch."""
    spec = importlib.util.spec_from_file_location(f"twin_{name}", TWINS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
