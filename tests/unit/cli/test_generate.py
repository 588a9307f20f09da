"""`glasshouse generate`."""

import json

import pytest
from click.testing import CliRunner

import glasshouse as gh
from glasshouse.cli import main
from glasshouse.text import Tokenizer, models


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small Llama with its tokenizer."""
    pytest.importorskip("tokenizers")
    path = tmp_path_factory.mktemp("model")
    tokenizer = Tokenizer.train(["the cat sat. the dog ran to Köln."] * 3, vocab_size=280)
    gh.random.seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48}
    config = models.LlamaConfig(vocab_size=len(tokenizer), num_hidden_layers=1,
                                max_position_embeddings=64, **sizes)  # fmt: skip
    models.save_pretrained(models.LlamaForCausalLM(config), path)
    tokenizer.save(path)
    settings = {"eos_token": "</s>", "chat_template": "{{ messages[0].content }}!"}
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path


def run(*args, **options):
    return CliRunner().invoke(main, ["generate", *map(str, args)], **options)


def test_a_prompt_is_continued_and_its_cost_said(folder):
    result = run("--model", folder, "--prompt", "the cat", "--max-tokens", 12, "--seed", 3)
    assert result.exit_code == 0, result.output
    assert "a second" in result.stderr and "MB of weights were read" in result.stderr
    model = gh.load(folder)
    tokens = model.tokenizer.encode("the cat").tokens[0]
    expected = model.generate(tokens, 12, temperature=0.8, seed=3, stop=model.tokenizer.eos_id)
    text = model.tokenizer.decode([expected])[0].rstrip("\ufffd")
    assert result.stdout.strip("\n") == text.strip("\n")


def test_a_prompt_comes_from_standard_input_and_ends_at_a_stop(folder):
    options = ("--model", folder, "--temperature", 0, "--max-tokens", 20)
    whole = run(*options, input="the").stdout
    assert len(whole) > 4
    stopped = run(*options, "--stop", whole[3:5], "--machine", "cpu2", input="the").stdout
    assert stopped == whole[:3] + "\n"


def test_a_message_is_answered_by_the_template(folder):
    pytest.importorskip("jinja2")
    options = ("--model", folder, "--temperature", 0, "--max-tokens", 8)
    assert run(*options, "--chat", "--prompt", "a").stdout == run(*options, "--prompt", "a!").stdout


def test_bad_calls_say_what_is_wrong(folder, tmp_path):
    for args, text in (
        (("--model", tmp_path, "--prompt", "x"), "config.json"),
        (("--model", folder, "--prompt", ""), "at least one token"),
        (("--model", folder, "--prompt", "the cat " * 60), "at most 64 tokens"),
        (("--model", folder, "--prompt", "x", "--machine", "none"), "machine"),
    ):
        result = run(*args)
        assert result.exit_code and text in result.output and "Traceback" not in result.output
