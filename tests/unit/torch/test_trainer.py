"""transformers' Trainer with `torch_compile_backend="glasshouse"`: losses are those of eager."""

import sys

import pytest

from glasshouse.torch import accelerate_names

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.library_warnings,
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def trainer_of(tmp_path, monkeypatch):
    """Makes a Trainer of a small BERT that classifies rows of random words."""
    pytest.importorskip("accelerate")
    from glasshouse.base.flags import flags
    from glasshouse.bench.torch_cases import import_transformers

    monkeypatch.setattr(flags, "compile", "never")
    pytest.importorskip("transformers")
    transformers = import_transformers()
    config = transformers.BertConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        vocab_size=50,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    words = torch.randint(0, 50, (16, 8))
    rows = [{"input_ids": x, "labels": torch.tensor(i % 2)} for i, x in enumerate(words)]

    def make(**options):
        torch.manual_seed(0)
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path),
            max_steps=4,
            per_device_train_batch_size=4,
            learning_rate=0.01,
            logging_steps=1,
            report_to=[],
            use_cpu=True,
            save_strategy="no",
            disable_tqdm=True,
            **options,
        )
        model = transformers.BertForSequenceClassification(config)
        return transformers.Trainer(model, arguments, train_dataset=rows, eval_dataset=rows)

    return make


def losses_of(trainer) -> list[float]:
    """The loss of each step, and that of the evaluation after them."""
    trainer.train()
    log = trainer.state.log_history
    return [x["loss"] for x in log if "loss" in x] + [trainer.evaluate()["eval_loss"]]


@pytest.mark.parametrize("options", [{}, {"bf16": True}])
def test_a_trainer_compiles_with_our_backend(trainer_of, options, monkeypatch):
    from glasshouse.torch.backend.runtime import TorchGraphProgram

    phases, make = set(), TorchGraphProgram.compile_variant

    def noted(program, args):
        phases.add(program.phase)
        return make(program, args)

    monkeypatch.setattr(TorchGraphProgram, "compile_variant", noted)
    eager = losses_of(trainer_of(**options))
    assert not phases
    ours = losses_of(trainer_of(torch_compile=True, torch_compile_backend="glasshouse", **options))
    assert phases == {"forward", "backward"}
    assert ours == pytest.approx(eager, rel=0.01 if options else 1e-4)


def test_accelerate_is_told_whichever_is_imported_first():
    pytest.importorskip("accelerate")
    from accelerate.utils import DynamoBackend

    assert DynamoBackend("GLASSHOUSE").value == "GLASSHOUSE"
    accelerate_names.add_backend(sys.modules["accelerate.utils.dataclasses"])  # again
    assert [x for x in DynamoBackend if x.name == "GLASSHOUSE"] == [DynamoBackend("GLASSHOUSE")]
