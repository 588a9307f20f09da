"""Messages of loggers in compiled programs are those of eager ones, and break no graph."""

import functools
import logging

import pytest

torch = pytest.importorskip("torch")

from torch._dynamo.utils import counters  # noqa: E402

pytest.importorskip("glasshouse.torch.backend.traced_messages", exc_type=ImportError)

pytestmark = pytest.mark.library_warnings
log = logging.getLogger("tests.messages")


class Messages(logging.Handler):
    """Messages as a user reads them: level, text, and where they come from."""

    def __init__(self):
        super().__init__()
        self.told = []

    def emit(self, record):
        place = record.pathname, record.lineno, record.funcName
        self.told.append((record.levelname, record.getMessage(), *place))

    def of(self, function, *args) -> list:
        """Return the messages of a call."""
        self.told.clear()
        function(*args)
        return list(self.told)


@pytest.fixture
def messages(monkeypatch):
    """List the messages from now on."""
    handler = Messages()
    log.addHandler(handler)
    monkeypatch.setattr(log, "propagate", False)
    log.setLevel(logging.DEBUG)
    yield handler
    log.removeHandler(handler)


@pytest.fixture
def count_breaks():
    """How many graphs were broken."""
    counters.clear()
    return lambda: sum(counters["graph_break"].values())


def inner(x, n: int):
    log.warning("n is %d", n)
    return x * n


def program(x):
    log.info(f"{x.shape[0]} numbers")
    x = inner(x, 3)
    log.log(logging.ERROR, "twice")
    x = inner(x, 4)
    log.debug("done")
    return x.sin()


def compiled(function, **named):
    return torch.compile(function, backend="glasshouse", **named)


def test_messages_are_eagers_in_each_call(messages):
    x = torch.ones(3)
    expected = messages.of(program, x)
    assert len(expected) == 5
    call = compiled(program, fullgraph=True)
    assert [messages.of(call, x) for _ in range(2)] == [expected, expected]
    torch.testing.assert_close(call(x), program(x))


def test_a_level_that_is_set_later_counts(messages):
    x, call = torch.ones(3), compiled(program, fullgraph=True)
    call(x)
    log.setLevel(logging.ERROR)
    assert [level for level, *_ in messages.of(call, x)] == ["ERROR"]


def test_each_module_tells_its_own_logger(messages):
    class Telling(torch.nn.Module):
        def __init__(self, logger):
            super().__init__()
            self.logger = logger

        def forward(self, x):
            self.logger.info("called")
            return x + 1

    other = logging.getLogger("tests.other messages")
    own = compiled(Telling(log))
    assert len(messages.of(own, torch.ones(2))) == 1
    assert messages.of(compiled(Telling(other)), torch.ones(2)) == []
    assert len(messages.of(own, torch.ones(2))) == 1


@functools.lru_cache
def warning_once(self, *args):
    self.warning(*args)


def test_a_method_that_a_library_added(messages, monkeypatch, count_breaks):
    monkeypatch.setattr(logging.Logger, "warning_once", warning_once, raising=False)
    warning_once.cache_clear()

    def function(x):
        log.warning_once("only once")
        return x * 2

    call = compiled(function)
    assert len(messages.of(call, torch.ones(2))) == 1
    assert messages.of(call, torch.ones(2)) == []
    assert count_breaks() == 0


def test_order_with_what_breaks_the_graph(messages):
    @torch._dynamo.disable
    def tell():
        messages.told.append(("", "a call that is not traced"))

    def function(x):
        log.info("before")
        tell()
        log.info("behind")
        return x.cos()

    texts = [line[1] for line in messages.of(function, torch.ones(2))]
    assert [line[1] for line in messages.of(compiled(function), torch.ones(2))] == texts


def test_a_message_before_an_error(messages):
    def function(x):
        y = x * 2
        log.warning("too long")
        if y.shape[0] > 2:
            raise ValueError("too long")
        return y

    call = compiled(function)
    with pytest.raises(ValueError, match="too long"):
        call(torch.ones(3))
    assert [text for _, text, *_ in messages.told] == ["too long"]


def returns_length(self, text):
    self.info(text)
    return len(text)


def with_tensor(x):
    y = x + 1
    log.info("sum %s", y.sum())
    return y * 2


def with_option(x):
    y = x + 1
    log.info("here", stacklevel=1)
    return y * 2


def with_result(x):
    return x * log.returns_length("abc")


def with_question(x):
    return x + 1 if log.isEnabledFor(logging.INFO) else x


def with_level(x):
    y = x + 1
    log.setLevel("ERROR")
    return y * log.level


@pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace")
@pytest.mark.parametrize("function", [with_tensor, with_option, with_result, with_level])
def test_other_calls_break_the_graph_as_ever(function, messages, monkeypatch, count_breaks):
    monkeypatch.setattr(logging.Logger, "returns_length", returns_length, raising=False)
    x = torch.ones(2)
    expected, result = messages.of(function, x), function(x)
    log.setLevel(logging.DEBUG)
    call = compiled(function)
    assert messages.of(call, x) == expected
    torch.testing.assert_close(call(x), result)
    assert count_breaks() > 0


def test_a_question_to_a_logger_is_answered(messages):
    x = torch.ones(2)
    torch.testing.assert_close(compiled(with_question)(x), x + 1)


def test_other_backends_are_as_they_were(messages):
    x = torch.ones(3)
    compiled(program)(x)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="Logger"):
        torch.compile(program, backend="eager", fullgraph=True)(x)
