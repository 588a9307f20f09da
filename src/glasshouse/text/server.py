"""An HTTP server with OpenAI's calls, on starlette."""

import asyncio
import base64
import json
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

import numpy as np

from glasshouse.base.errors import DTypeError, Explained, OptionError, optional, type_name
from glasshouse.nn.generation import TokenSampler
from glasshouse.ops.checks import check_integer, check_option
from glasshouse.text.engine import Engine, QueueFull, TextRequest
from glasshouse.text.grammars import Grammar
from glasshouse.text.sentences import SentenceEncoder
from glasshouse.text.streams import chat_prompt

__all__ = ["make_server"]

WHERE = "serve"
MOST_BYTES = 8 << 20  # of a request
CHECK_S = 0.5  # between two looks whether a client is still there


class ModelServer:
    """The calls: each takes a request of starlette and gives a response."""

    def __init__(self, engine: Engine | SentenceEncoder, name: str) -> None:
        self.engine = engine
        self.name = name
        self.tokenizer: Any = engine.tokenizer
        self.responses: Any = optional(
            WHERE, "starlette to be installed", "starlette.responses", "serve"
        )
        self.start: int = int(time.time())
        self.embedding: asyncio.Lock = asyncio.Lock()

    # -- plain calls -----------------------------------------------------------------------------

    async def health(self, request: Any) -> Any:
        """Whether the engine works."""
        works = self.engine.is_alive
        answer = {"status": "ok" if works else "stopped"}
        return self.responses.JSONResponse(answer, 200 if works else 503)

    async def metrics(self, request: Any) -> Any:
        """Counts of requests and tokens."""
        return self.responses.PlainTextResponse(self.engine.metrics())

    async def models(self, request: Any) -> Any:
        """The one model."""
        one = {"id": self.name, "object": "model", "created": self.start, "owned_by": "glasshouse"}
        return self.responses.JSONResponse({"object": "list", "data": [one]})

    async def embeddings(self, request: Any) -> Any:
        """A vector of each text."""
        body = await body_of(request)
        texts = body.get("input")
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(texts, list) or not texts or not all(isinstance(x, str) for x in texts):
            raise DTypeError(WHERE, "input: a text or several", type_name(texts), "Correct it.")
        form = body.get("encoding_format") or "float"
        check_option(WHERE, "encoding_format", form, ("float", "base64"))
        async with self.embedding:
            vectors, count = await asyncio.to_thread(self.engine.embed, texts)
        data = [{"object": "embedding", "index": i, "embedding": written(vector, form)}
                for i, vector in enumerate(vectors)]  # fmt: skip
        usage = {"prompt_tokens": count, "total_tokens": count}
        answer = {"object": "list", "data": data, "model": self.name, "usage": usage}
        return self.responses.JSONResponse(answer)

    # -- texts -----------------------------------------------------------------------------------

    @property
    def writer(self) -> Engine:
        """The engine, if it writes.

        Raises: OptionError for one that gives vectors alone.
        """
        if isinstance(self.engine, Engine):
            return self.engine
        got, fix = type(self.engine.model).__name__, "Ask /v1/embeddings, or serve a decoder."
        raise OptionError(WHERE, "a model that writes", got, fix)

    def encoded(self, text: str, special: bool = True) -> list[int]:
        return self.tokenizer.encode(text, special=special).tokens[0].tolist()

    async def completions(self, request: Any) -> Any:
        """Continue a prompt: a text, or tokens."""
        _, body = self.writer, await body_of(request)
        prompt = body.get("prompt")
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
            (prompt,) = prompt
        if not isinstance(prompt, (str, list)):
            expected = "prompt: a text, or a list of tokens"
            raise DTypeError(WHERE, expected, type_name(prompt), "Pass one prompt a call.")
        tokens = self.encoded(prompt) if isinstance(prompt, str) else prompt
        first = getattr(self.tokenizer, "bos_id", None)
        tokens = tokens or ([] if first is None else [first])
        return await self.answered(request, body, tokens, "text_completion")

    async def chat(self, request: Any) -> Any:
        """Answer the last message of a chat."""
        _, body = self.writer, await body_of(request)
        tokens = self.encoded(chat_prompt(self.tokenizer, body.get("messages", "")), special=False)
        return await self.answered(request, body, tokens, "chat.completion")

    async def answered(self, request: Any, body: Mapping[str, Any], prompt: Any, kind: str) -> Any:
        """The text, whole or as a stream."""
        tokens, parts = self.writer.check(prompt), asyncio.Queue[tuple[str, Any]]()
        loop = asyncio.get_running_loop()

        def tell(text: str, end: Any) -> None:
            loop.call_soon_threadsafe(parts.put_nowait, (text, end))

        task = self.task_of(body, tokens, tell, kind)
        frame = {"id": f"cmpl-{uuid.uuid4().hex}", "object": kind, "created": int(time.time()),
                 "model": self.name}  # fmt: skip
        self.writer.submit(task)
        if body.get("stream"):
            with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
            events = self.events(task, parts, frame, with_usage)
            return self.responses.StreamingResponse(events, media_type="text/event-stream")
        texts: list[str] = []
        try:
            end = None
            while end is None:
                try:
                    text, end = await asyncio.wait_for(parts.get(), CHECK_S)
                    texts.append(text)
                except TimeoutError:
                    if await request.is_disconnected():
                        break
        finally:
            task.cancel()
        if not isinstance(end, (str, type(None))):
            raise end
        choice = {"index": 0, "finish_reason": end, "logprobs": None}
        choice |= part_of(kind, "".join(texts), "message")
        answer = {**frame, "choices": [choice], "usage": usage_of(task)}
        return self.responses.JSONResponse(answer)

    def task_of(
        self, body: Mapping[str, Any], tokens: list[int], tell: Any, kind: str
    ) -> TextRequest:
        """The request of a call's options.

        Raises: OptionError or DTypeError for wrong ones.
        """
        usual = 16 if kind == "text_completion" else self.writer.context
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        limit = check_integer(WHERE, "max_tokens", usual if limit is None else limit, 1)
        if check_integer(WHERE, "n", body.get("n") or 1, 1) > 1:
            raise OptionError(WHERE, "n: 1", body["n"], "Call several times, with other seeds.")
        values = {name: body.get(name) for name in ("temperature", "top_k", "top_p", "min_p")}
        values["repetition_penalty"] = body.get("repetition_penalty")
        options = {name: value for name, value in values.items() if value is not None}
        sampler = TokenSampler(**{"temperature": 1.0, **options})
        stop = body.get("stop")
        stops = [stop] if isinstance(stop, str) else stop or []
        if not isinstance(stops, list) or not all(isinstance(x, str) and x for x in stops):
            raise DTypeError(WHERE, "stop: a text or several", type_name(stop), "Correct it.")
        seed = body.get("seed")
        seed = uuid.uuid4().int if seed is None else check_integer(WHERE, "seed", seed)
        allowed = self.grammar_of(body.get("response_format"))
        return TextRequest(tokens, limit, tell, sampler, stops=stops, seed=seed, allowed=allowed)

    def grammar_of(self, form: Any) -> Grammar | None:
        """The form of an answer."""
        kind = form.get("type") if isinstance(form, Mapping) else None
        if form is None or kind == "text":
            return None
        end = next(iter(self.writer.ends), None)
        if kind == "json_object":
            return Grammar(self.tokenizer, json_schema={"type": "object"}, end_token=end)
        schema = form.get("json_schema") if kind == "json_schema" else None
        if not isinstance(schema, Mapping) or "schema" not in schema:
            expected = "response_format of type text, json_object or json_schema"
            raise OptionError(WHERE, expected, repr(form)[:80], "Correct it.")
        return Grammar(self.tokenizer, json_schema=schema["schema"], end_token=end)

    async def events(
        self, task: TextRequest, parts: Any, frame: dict[str, Any], with_usage: bool
    ) -> AsyncIterator[str]:
        """The parts of a text as they come; the request is dropped when nobody listens."""
        kind = frame["object"]
        if kind == "chat.completion":
            frame = {**frame, "object": "chat.completion.chunk"}
        try:
            end = None
            while end is None:
                text, end = await parts.get()
                if not isinstance(end, (str, type(None))):
                    yield event(error_of(end, 500))
                    break
                choice = {"index": 0, "finish_reason": end, "logprobs": None}
                choice |= part_of(kind, text, "delta")
                yield event({**frame, "choices": [choice]})
            if with_usage:
                yield event({**frame, "choices": [], "usage": usage_of(task)})
            yield "data: [DONE]\n\n"
        finally:
            task.cancel()

    async def failed(self, request: Any, error: Exception) -> Any:
        """The answer to a wrong call."""
        status = 429 if isinstance(error, QueueFull) else 400
        status = status if isinstance(error, (QueueFull, OptionError, DTypeError)) else 500
        return self.responses.JSONResponse(error_of(error, status), status)


async def body_of(request: Any) -> dict[str, Any]:
    """The JSON of a request.

    Raises: OptionError for another text, or too long a one.
    """
    data = b""
    async for part in request.stream():
        data += part
        if len(data) > MOST_BYTES:
            got = f"more than {MOST_BYTES:,}"
            raise OptionError(WHERE, f"at most {MOST_BYTES:,} bytes", got, "Send less.")
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise OptionError(WHERE, "JSON", error, "Correct it.") from None
    if not isinstance(body, dict):
        raise OptionError(WHERE, "a JSON object", type_name(body), "Correct it.")
    return body


def written(vector: np.ndarray, form: str) -> Any:
    """A vector as JSON has it: a list, or the bytes of float32."""
    if form == "float":
        return vector.tolist()
    return base64.b64encode(np.asarray(vector, "<f4").tobytes()).decode()


def part_of(kind: str, text: str, name: str) -> dict[str, Any]:
    """A text as a choice has it."""
    if kind == "text_completion":
        return {"text": text}
    return {name: {"role": "assistant", "content": text}}


def usage_of(task: TextRequest) -> dict[str, int]:
    """How many tokens were read and written."""
    prompt, written = len(task.tokens), len(task.results)
    return {"prompt_tokens": prompt, "completion_tokens": written,
            "total_tokens": prompt + written}  # fmt: skip


def error_of(error: Any, status: int) -> dict[str, Any]:
    kind = {400: "invalid_request_error", 429: "rate_limit_error"}.get(status, "server_error")
    text = str(error) if isinstance(error, Explained) else f"{type(error).__name__}: {error}"
    return {"error": {"message": text, "type": kind, "param": None, "code": None}}


def event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


def make_server(engine: Engine | SentenceEncoder, name: str = "glasshouse") -> Any:
    """An ASGI application with OpenAI's calls `/v1/completions`, `/v1/chat/completions`,
    `/v1/embeddings` and `/v1/models`, and `/health` and `/metrics`. A SentenceEncoder answers
    `/v1/embeddings`, and refuses to write.

    Raises: BackendError where starlette is not installed.
    Source: OpenAI's API, for the calls.
    """
    applications = optional(
        "make_server", "starlette to be installed", "starlette.applications", "serve"
    )
    routing = optional("make_server", "starlette to be installed", "starlette.routing", "serve")
    server = ModelServer(engine, name)
    gets = {"/health": server.health, "/metrics": server.metrics, "/v1/models": server.models}
    posts = {
        "/v1/completions": server.completions,
        "/v1/chat/completions": server.chat,
        "/v1/embeddings": server.embeddings,
    }
    routes = [routing.Route(path, fn) for path, fn in gets.items()]
    routes += [routing.Route(path, fn, methods=["POST"]) for path, fn in posts.items()]
    return applications.Starlette(
        routes=routes, exception_handlers={Explained: server.failed, Exception: server.failed}
    )
