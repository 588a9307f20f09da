"""`glasshouse train digits` over ranks: the curve of one process, and runs that change ranks."""

import numpy as np
import pytest
from click.testing import CliRunner

from glasshouse import distributed as dist
from glasshouse import optim
from glasshouse.cli import main
from glasshouse.cli.train_digits import TrainingRecipe, TrainingRun

RECIPE = TrainingRecipe(epochs=2, batch_size=64)  # 23 steps each, the last of 29 images


class WithSGD(TrainingRun):
    """The run with an optimizer that does not make much of rounding: where a gradient is 0 but for
    that, AdamW steps as far as anywhere."""

    def __init__(self, recipe):
        super().__init__(recipe)
        self.optimizer = optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)
        self.schedule = optim.ExponentialLR(self.optimizer, 0.8)


def epochs(out, count, resume):
    """The losses of so many epochs, which are saved."""
    run = WithSGD.restore(out) if resume else WithSGD(RECIPE)
    for _ in range(count):
        run.epoch(lambda loss: None)
    run.save(out)
    dist.barrier()
    return [[row[name] for name in ("train_loss", "test_loss")] for row in run.history]


@pytest.mark.slow
def test_the_curve_is_that_of_one_process_also_when_ranks_change(ranks, tmp_path):
    expected = epochs(tmp_path / "alone", 2, False)
    for own in ranks(epochs, tmp_path, 1, False):
        np.testing.assert_allclose(own, expected[:1], rtol=1e-5)
    np.testing.assert_allclose(epochs(tmp_path, 1, True), expected, rtol=1e-5)


@pytest.mark.slow
def test_the_command_starts_ranks_and_tells_what_they_refuse(tmp_path):
    options = ["--ranks", "2", "--batch-size", "1", "--out", str(tmp_path), "--backend", "numpy"]
    result = CliRunner().invoke(main, ["train", "digits", *options])
    assert result.exit_code == 2
    assert "batches of at least 2 images" in " ".join(result.output.split())
