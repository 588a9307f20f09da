"""Write a network that reads digits as C that trains it: python export.py FOLDER

Then no Python is needed: `cmake -S FOLDER -B build && cmake --build build`, and build/train_digits
trains it to 98 % (main.c says how). With -DGH_ONEDNN=ON, convolutions are oneDNN's."""

import shutil
import sys
from pathlib import Path

import numpy as np

import glasshouse as gh
from glasshouse import nn
from glasshouse.data import digits

BATCH, HELD_OUT = 64, 360
BUILD = """
add_executable(train_digits train_digits.c)
target_link_libraries(train_digits glasshouse_programs)
"""


def main(folder: Path) -> None:
    gh.manual_seed(0)
    parts: list[nn.Module] = []
    for channels, out, pooled in ((1, 16, False), (16, 32, True), (32, 32, True)):
        parts += [nn.Conv2d(channels, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU()]
        parts += [nn.MaxPool2d(2)] if pooled else []
    model = nn.Sequential(*parts, nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * 2 * 2, 10))
    optimizer = gh.optim.AdamW(model.parameters(), lr=0.005)

    def step(images, labels):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    images, labels = digits("train").arrays
    forms = ("plain", "onednn")
    gh.export_program(step, folder, images[:BATCH], labels[:BATCH], name="train", forms=forms)
    model.eval()
    held_out, wanted = digits("test").arrays
    gh.export_program(lambda x: model(x), folder, held_out, name="predict", forms=forms)
    with (folder / "digits.bin").open("wb") as file:
        for pictures, numbers in ((images, labels), (held_out, wanted)):
            file.write(np.int64(len(numbers)).tobytes())
            file.write(pictures.astype(np.float32).tobytes())
            file.write(numbers.astype(np.int64).tobytes())
    shutil.copy(Path(__file__).with_name("main.c"), folder / "train_digits.c")
    with (folder / "CMakeLists.txt").open("a") as file:
        file.write(BUILD)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
