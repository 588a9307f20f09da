"""Texts that appear token by token, prompts of chats, and texts of a grammar."""

import json
import re

import pytest

import glasshouse as gh
from glasshouse.text import Grammar, TextStream, Tokenizer, chat_prompt, models

TEXT = "Grüße aus Köln – 5 € für „Käse“. Ende."


@pytest.fixture(scope="module")
def tokenizer():
    pytest.importorskip("tokenizers")
    return Tokenizer.train(["the cat sat. the dog said yes or no, 12 {}"] * 3, vocab_size=290)


def streamed(tokenizer, text, stops=()):
    stream, parts = TextStream(tokenizer, stops), []
    for token in tokenizer.encode(text).tokens[0]:
        parts.append(stream.add(token))
    return [*parts, stream.finish()], stream


def test_characters_appear_whole(tokenizer):
    parts, stream = streamed(tokenizer, TEXT)
    assert "".join(parts) == TEXT and len(parts) > len(TEXT)
    assert not any("\ufffd" in part for part in parts)
    assert not any(part for part in parts[:-1] if part == "\ufffd")


@pytest.mark.parametrize("stop", ["Köln", "Kö", "ln – 5", "€", "Ende.", "G"])
def test_a_stop_and_what_follows_do_not_belong_to_the_text(tokenizer, stop):
    parts, stream = streamed(tokenizer, TEXT, [stop, "not there"])
    assert "".join(parts) == TEXT[: TEXT.index(stop)] and stream.is_ended
    assert stream.add(5) == "" and stream.finish() == ""


def test_the_beginning_of_a_stop_waits_and_comes_if_it_is_none(tokenizer):
    parts, _ = streamed(tokenizer, "the cat", ["the dog"])
    assert "".join(parts) == "the cat"
    parts, _ = streamed(tokenizer, "the do", ["the dog"])
    assert parts[-1] == "the do"


def test_a_text_that_ends_inside_of_a_character_lacks_it(tokenizer):
    tokens, stream = tokenizer.encode("5 €").tokens[0], TextStream(tokenizer)
    assert "".join(stream.add(token) for token in tokens[:-1]) + stream.finish() == "5 "


def test_the_whole_characters_before_a_broken_one_at_the_end_come(tokenizer):
    tokens, stream = tokenizer.encode("5 Käs€").tokens[0], TextStream(tokenizer)
    text = "".join(stream.add(token) for token in tokens[:3])
    stream.tokens += [int(token) for token in tokens[3:-1]]  # as one token of several bytes
    assert text + stream.finish() == "5 Käs"


@pytest.mark.parametrize("stops", [[""], [5], 7])
def test_stops_that_are_no_texts_are_an_error(tokenizer, stops):
    with pytest.raises(gh.DTypeError, match="stops as texts"):
        TextStream(tokenizer, stops)


TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    "<s>{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant:{% endif %}"
)


def test_a_chat_becomes_a_prompt_by_the_template(tokenizer, monkeypatch):
    pytest.importorskip("jinja2")
    monkeypatch.setattr(tokenizer, "chat_template", TEMPLATE)
    monkeypatch.setattr(tokenizer, "eos_id", tokenizer.token_id("</s>"))
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}]
    expected = "<s>system: Be kind.</s><s>user: Hi</s><s>assistant:"
    assert chat_prompt(tokenizer, messages) == expected
    with pytest.raises(gh.OptionError, match="no tools"):
        chat_prompt(tokenizer, [{"role": "tool", "content": "x"}])
    with pytest.raises(gh.OptionError, match="at least one message"):
        chat_prompt(tokenizer, [])
    for bad in ("Hi", [{"role": "user"}], [{"role": 1, "content": "x"}]):
        with pytest.raises(gh.DTypeError, match="role and content"):
            chat_prompt(tokenizer, bad)
    monkeypatch.setattr(
        tokenizer, "chat_template", "{{ messages.__class__.__mro__[1]() }}{{ x/0 }}"
    )
    with pytest.raises(gh.OptionError, match="a template that works"):
        chat_prompt(tokenizer, messages)
    monkeypatch.setattr(tokenizer, "chat_template", None)
    with pytest.raises(gh.OptionError, match="a chat template"):
        chat_prompt(tokenizer, messages)


def small(tokenizer):
    gh.random.seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48}
    config = models.LlamaConfig(vocab_size=len(tokenizer) + 6, num_hidden_layers=1, **sizes)
    return models.LlamaForCausalLM(config)


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_texts_match_a_regular_expression_or_a_schema(tokenizer, temperature):
    pytest.importorskip("llguidance")
    model, end = small(tokenizer), tokenizer.token_id("</s>")
    grammar = Grammar(tokenizer, regex="(yes|no), [0-9]{2}", end_token=end)
    rows = model.generate([[5, 6], [7]], 20, allowed=grammar, stop=end, temperature=temperature)
    for row in rows:
        assert re.fullmatch("(yes|no), [0-9]{2}", tokenizer.decode([row[:-1]])[0])
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
              "additionalProperties": False}  # fmt: skip
    grammar = Grammar(tokenizer, json_schema=schema, end_token=end)
    row = model.generate([5], 60, allowed=grammar, stop=end, temperature=temperature)
    if row[-1] == end:
        assert set(json.loads(tokenizer.decode([row[:-1]])[0])) == {"ok"}


def test_a_form_that_cannot_be_used_is_an_error(tokenizer):
    pytest.importorskip("llguidance")
    with pytest.raises(gh.OptionError, match="a usable form"):
        Grammar(tokenizer, regex="(")
    with pytest.raises(gh.OptionError, match="a usable form"):
        Grammar(tokenizer, json_schema="{wrong")
    with pytest.raises(gh.OptionError, match="both or none"):
        Grammar(tokenizer)
