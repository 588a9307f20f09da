"""The server, by a client in the same process; and the engine of many texts at once."""

import asyncio
import base64
import json
import threading
import time

import numpy as np
import pytest
from click.testing import CliRunner

import glasshouse as gh
from glasshouse.cli import main
from glasshouse.text import (
    Engine,
    SentenceEncoder,
    TextRequest,
    Tokenizer,
    embed_sentences,
    make_server,
    models,
)
from glasshouse.text.engine import QueueFull

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}a:"


@pytest.fixture(scope="module")
def engine():
    pytest.importorskip("tokenizers")
    tokenizer = Tokenizer.train(["the cat sat. the dog ran to the Köln."] * 3, vocab_size=280)
    tokenizer.chat_template = TEMPLATE
    gh.random.seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 48}
    config = models.LlamaConfig(vocab_size=len(tokenizer), num_hidden_layers=2,
                                max_position_embeddings=96, **sizes)  # fmt: skip
    engine = Engine(models.LlamaForCausalLM(config), tokenizer, slots=3, queue_size=40)
    yield engine
    engine.close()


class Answer:
    """The text that an engine tells."""

    def __init__(self):
        self.text, self.end, self.done = "", None, threading.Event()

    def __call__(self, text, end):
        self.text += text
        if end is not None:
            self.end = end
            self.done.set()

    def wait(self):
        assert self.done.wait(60)
        return self.text, self.end


def alone(engine, tokens, limit, **options):
    """The text of `generate`."""
    row = engine.model.generate(tokens, limit, stop=[], **options)
    return engine.tokenizer.decode([row])[0].rstrip("\ufffd")


def tokens_of(engine, text):
    return engine.tokenizer.encode(text).tokens[0].tolist()


@pytest.mark.slow
def test_many_requests_get_the_texts_that_they_would_get_alone(engine):
    prompts = [tokens_of(engine, text) for text in ("the", "the cat sat", "dog ran to", "K")]
    prompts += [tokens_of(engine, "the cat sat. the dog ran to the Köln. " * 4)[: 40 + i]
                for i in range(6)]  # fmt: skip
    answers = [Answer() for _ in prompts]
    for i, (prompt, answer) in enumerate(zip(prompts, answers)):
        engine.submit(TextRequest(prompt, 5 + 3 * i, answer))
    for i, (prompt, answer) in enumerate(zip(prompts, answers)):
        assert answer.wait() == (alone(engine, prompt, 5 + 3 * i), "length")
    assert engine.counts["shared_tokens"] > 0


def test_draws_stops_and_grammars_are_those_of_the_request(engine):
    prompt, sampler = tokens_of(engine, "the cat"), gh.nn.TokenSampler(1.0, top_k=8)
    first, second = Answer(), Answer()
    engine.submit(TextRequest(prompt, 12, first, sampler, seed=3))
    expected = alone(engine, prompt, 12, temperature=1.0, top_k=8, seed=3)
    assert first.wait() == (expected, "length") and len(expected) > 5
    engine.submit(TextRequest(prompt, 12, second, sampler, seed=3, stops=[expected[2:4]]))
    assert second.wait() == (expected[: expected.index(expected[2:4])], "stop")


def test_a_request_that_is_cancelled_frees_its_slot_and_others_fail_alone(engine):
    answers = [Answer() for _ in range(3)]
    request = TextRequest([1, 2], 90, answers[0])
    request.cancel()
    engine.submit(request)
    engine.submit(TextRequest([1, 2], 4, answers[1], allowed=lambda row, new: np.zeros(9, bool)))
    engine.submit(TextRequest([1, 2], 4, answers[2]))
    assert answers[0].wait() == ("", "cancelled")
    assert isinstance(answers[1].wait()[1], gh.OptionError)
    assert answers[2].wait()[1] == "length"
    assert not any(engine.rows)


def test_a_listener_that_fails_ends_its_own_text_alone(engine):
    def fail(text, end):
        raise RuntimeError("Event loop is closed")

    answers = [Answer() for _ in range(2)]
    for tell in (fail, answers[0], fail, answers[1]):
        engine.submit(TextRequest([1, 2], 6, tell))
    assert [answer.wait()[1] for answer in answers] == ["length", "length"]
    assert engine.is_alive and not any(engine.rows)


def test_a_queue_has_an_end(engine):
    engine.queue_size, size = 0, engine.queue_size
    try:
        with pytest.raises(QueueFull, match="at most 0 waiting"):
            engine.submit(TextRequest([1], 1, Answer()))
    finally:
        engine.queue_size = size


def test_an_engine_takes_decoders_with_a_cache_alone(engine):
    sizes = {"d_model": 8, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = models.MarianConfig(vocab_size=20, encoder_layers=1, decoder_layers=1, **sizes)
    for model in (models.MarianMTModel(config), gh.nn.Linear(2, 2)):
        with pytest.raises(gh.OptionError, match="a decoder with a cache"):
            Engine(model, engine.tokenizer)


@pytest.fixture(scope="module")
def client(engine):
    pytest.importorskip("starlette")
    testclient = pytest.importorskip("starlette.testclient")
    with testclient.TestClient(make_server(engine, "tiny")) as client:
        yield client


def post(client, path, **body):
    return client.post(f"/v1/{path}", json=body)


def test_a_prompt_is_completed(engine, client):
    answer = post(client, "completions", prompt="the cat", max_tokens=9, temperature=0).json()
    (choice,) = answer["choices"]
    tokens = tokens_of(engine, "the cat")
    assert choice["text"] == alone(engine, tokens, 9) and choice["finish_reason"] == "length"
    assert answer["usage"] == {"prompt_tokens": len(tokens), "completion_tokens": 9,
                               "total_tokens": len(tokens) + 9}  # fmt: skip
    again = post(client, "completions", prompt=[tokens], max_tokens=9, temperature=0).json()
    assert again["choices"] == answer["choices"]
    stop = choice["text"][3:5]
    answer = post(client, "completions", prompt="the cat", max_tokens=9, temperature=0, stop=stop)
    (choice,) = answer.json()["choices"]
    assert choice["finish_reason"] == "stop" and stop not in choice["text"]


def test_a_chat_is_streamed(engine, client):
    pytest.importorskip("jinja2")
    body = {"messages": [{"role": "user", "content": "the dog"}], "max_tokens": 8, "seed": 4,
            "stream_options": {"include_usage": True}}  # fmt: skip
    whole = post(client, "chat/completions", **body).json()["choices"][0]["message"]["content"]
    lines = post(client, "chat/completions", stream=True, **body).text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    assert "".join(c["choices"][0]["delta"]["content"] for c in chunks[:-1]) == whole
    assert chunks[-2]["choices"][0]["finish_reason"] == "length" and len(chunks) > 4
    assert chunks[-1]["usage"]["completion_tokens"] == 8


def test_texts_become_vectors(client):
    answer = post(client, "embeddings", input=["the cat", "the dog ran"]).json()
    vectors = np.array([item["embedding"] for item in answer["data"]])
    assert vectors.shape == (2, 32)
    np.testing.assert_allclose((vectors**2).sum(1), 1, rtol=1e-5)
    one = post(client, "embeddings", input="the cat").json()["data"][0]["embedding"]
    np.testing.assert_allclose(one, vectors[0], rtol=1e-5)


def test_answers_have_the_form_that_is_asked_for(client):
    pytest.importorskip("llguidance")
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"],
              "additionalProperties": False}  # fmt: skip
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    answer = post(client, "completions", prompt="the", max_tokens=60, response_format=form, seed=1)
    assert answer.json()["choices"][0]["text"].lstrip().startswith("{")


def test_the_server_tells_of_itself(engine, client):
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/v1/models").json()["data"][0]["id"] == "tiny"
    lines = dict(line.split() for line in client.get("/metrics").text.splitlines())
    assert int(lines["glasshouse_written_tokens_total"]) > 0
    assert lines["glasshouse_slots"] == "3" and lines["glasshouse_waiting"] == "0"


BAD = {
    "empty": ({"prompt": ""}, "at least one token"),
    "long": ({"prompt": "the cat " * 99}, "at most 96 tokens"),
    "unknown": ({"prompt": [5000]}, "tokens from 0"),
    "kind": ({"prompt": 5}, "prompt: a text"),
    "several": ({"prompt": ["a", "b"]}, "integers"),
    "tokens": ({"prompt": "a", "max_tokens": -1}, "max_tokens"),
    "n": ({"prompt": "a", "n": 2}, "n: 1"),
    "temperature": ({"prompt": "a", "temperature": "hot"}, "temperature"),
    "stop": ({"prompt": "a", "stop": [5]}, "stop: a text"),
    "form": ({"prompt": "a", "response_format": {"type": "poem"}}, "response_format"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_wrong_call_is_answered_with_what_is_wrong(client, case):
    body, text = BAD[case]
    answer = client.post("/v1/completions", json=body)
    assert answer.status_code == 400 and text in answer.json()["error"]["message"]
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("data", [b"{wrong", b"[1]", b"[" * 100000, b"\xff"])
def test_a_text_that_is_no_json_is_refused(client, data):
    assert client.post("/v1/completions", content=data).status_code == 400


def test_more_tokens_than_there_is_room_for_are_as_many_as_there_is_room_for(engine, client):
    answer = post(client, "completions", prompt=[1] * 90, max_tokens=10**9, temperature=0).json()
    assert answer["usage"]["completion_tokens"] in range(1, 8)


def test_a_full_queue_is_answered_with_429(engine, client):
    engine.queue_size, size = 0, engine.queue_size
    try:
        assert post(client, "completions", prompt="a").status_code == 429
    finally:
        engine.queue_size = size


def test_a_client_that_goes_frees_its_slot(engine, client):
    """The generator of a stream is closed, as starlette does it."""
    from glasshouse.text.server import ModelServer

    async def leave():
        parts = asyncio.Queue()
        loop = asyncio.get_running_loop()
        request = TextRequest(
            [1, 2], 90, lambda *pair: loop.call_soon_threadsafe(parts.put_nowait, pair)
        )
        engine.submit(request)
        frame = {"object": "text_completion"}
        events = ModelServer(engine, "tiny").events(request, parts, frame, False)
        await anext(events)
        await events.aclose()
        assert request.is_cancelled

    asyncio.run(leave())
    end = time.monotonic() + 30
    while any(engine.rows) and time.monotonic() < end:
        time.sleep(0.01)
    assert not any(engine.rows)


def test_openais_package_talks_to_it(engine, client):
    openai = pytest.importorskip("openai")
    api = openai.OpenAI(api_key="none", base_url="http://testserver/v1", http_client=client)
    answer = api.completions.create(model="tiny", prompt="the cat", max_tokens=6, temperature=0)
    assert answer.choices[0].text == alone(engine, tokens_of(engine, "the cat"), 6)
    messages = [{"role": "user", "content": "the dog"}]
    chunks = api.chat.completions.create(
        model="tiny", messages=messages, max_tokens=6, seed=1, stream=True
    )
    text = "".join(chunk.choices[0].delta.content for chunk in chunks)
    whole = api.chat.completions.create(model="tiny", messages=messages, max_tokens=6, seed=1)
    assert whole.choices[0].message.content == text


# -- encoders ----------------------------------------------------------------------------------

SENTENCES = ["A cat sits on a mat.", "The bank raised its rates, again.", "cat", "dog " * 90]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small BERT with its tokenizer, as transformers writes them."""
    pytest.importorskip("tokenizers")
    path = tmp_path_factory.mktemp("bert")
    tokenizer = Tokenizer.train(SENTENCES * 2, 120, "wordpiece", lowercase=True)
    gh.random.seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
    config = models.BertConfig(vocab_size=len(tokenizer), num_hidden_layers=2,
                               max_position_embeddings=64, **sizes)  # fmt: skip
    models.save_pretrained(models.BertModel(config), path)
    tokenizer.save(path)
    return path


@pytest.fixture(scope="module")
def sentence_client(folder):
    pytest.importorskip("starlette")
    testclient = pytest.importorskip("starlette.testclient")
    model = gh.load(folder)
    encoder = SentenceEncoder(model, model.tokenizer)
    with testclient.TestClient(make_server(encoder, "tiny-bert")) as client:
        yield client


@pytest.mark.parametrize("form", ["float", "base64"])
def test_openais_package_gets_the_vectors_of_an_encoder(folder, sentence_client, form):
    openai = pytest.importorskip("openai")
    api = openai.OpenAI(
        api_key="none", base_url="http://testserver/v1", http_client=sentence_client
    )
    answer = api.embeddings.create(model="tiny-bert", input=SENTENCES, encoding_format=form)
    model = gh.load(folder)
    expected = embed_sentences(model, model.tokenizer, SENTENCES, max_length=64)
    results = [item.embedding for item in answer.data]
    if form == "base64":
        results = [np.frombuffer(base64.b64decode(x), "<f4") for x in results]
    np.testing.assert_allclose(results, expected, atol=1e-6)
    assert answer.usage.prompt_tokens > 64
    (one,) = api.embeddings.create(model="tiny-bert", input=SENTENCES[0]).data
    np.testing.assert_allclose(one.embedding, expected[0], atol=1e-5)


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_an_encoder_does_not_write(sentence_client, path):
    answer = post(sentence_client, path, prompt="a", messages=[{"role": "user", "content": "a"}])
    assert answer.status_code == 400
    assert "a model that writes; got BertModel" in answer.json()["error"]["message"]
    assert "/v1/embeddings" in answer.json()["error"]["message"]


def test_a_server_of_vectors_tells_of_itself(sentence_client):
    assert sentence_client.get("/health").json() == {"status": "ok"}
    post(sentence_client, "embeddings", input="cat")
    lines = dict(line.split() for line in sentence_client.get("/metrics").text.splitlines())
    assert int(lines["glasshouse_requests_total"]) > 0
    answer = post(sentence_client, "embeddings", input="cat", encoding_format="bits")
    assert answer.status_code == 400 and "base64" in answer.json()["error"]["message"]


def test_a_head_of_an_encoder_is_left_out_and_others_are_refused(engine):
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16}
    config = models.BertConfig(vocab_size=300, num_hidden_layers=1, **sizes)
    model = models.BertForSequenceClassification(config)
    assert SentenceEncoder(model, engine.tokenizer).model is model.bert
    with pytest.raises(gh.OptionError, match="a model with an encoder; got Linear"):
        SentenceEncoder(gh.nn.Linear(2, 2), engine.tokenizer)


def test_the_command_serves_a_folder_of_a_bert(folder, monkeypatch):
    uvicorn, testclient = (pytest.importorskip(x) for x in ("uvicorn", "starlette.testclient"))
    answers = []

    def run(app, **options):
        with testclient.TestClient(app) as client:
            answers.append(post(client, "embeddings", input=SENTENCES[:2]).json())

    monkeypatch.setattr(uvicorn, "run", run)
    done = CliRunner().invoke(main, ["serve", "--model", str(folder)])
    assert done.exit_code == 0, done.output
    model = gh.load(folder)
    expected = embed_sentences(model, model.tokenizer, SENTENCES[:2])
    results = [item["embedding"] for item in answers[0]["data"]]
    np.testing.assert_allclose(results, expected, atol=1e-6)
    assert answers[0]["model"] == folder.name
