"""An interrupt that comes at any moment reaches the caller, and leaves all as Python could."""

import _thread
import gc
import signal
import threading
import weakref
from functools import partial

import numpy as np
import pytest
from checking import X

import glasshouse as gh
from glasshouse import nn
from glasshouse.base import interrupts
from glasshouse.capture.bytecode.native import native
from glasshouse.capture.rules.opcodes import HANDLERS
from glasshouse.dispatch.bind import state, watchers
from glasshouse.graph.record import recorder
from glasshouse.tensor import random

TRIALS = 30  # of each test, each with the interrupt at another moment
ENOUGH = 5_000  # calls that an interrupt is waited for


@pytest.fixture(autouse=True)
def alarm():
    """The alarm interrupts, as Ctrl-C does."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_signals_wait_only_while_a_run_overwrites_what_others_see(monkeypatch):
    """Handlers are replaced for no other call: it would cost as much as a small kernel."""
    held = []
    begin = interrupts.Held.begin
    net, x = nn.Linear(3, 2), gh.ones((2, 3))
    opt = gh.optim.SGD(net.parameters(), lr=1.0)

    def train(x):
        opt.zero_grad()
        net(x).sum().backward()
        opt.step()

    for function, holds in ((lambda x: net(x) * 2, 0), (train, 1)):
        captured = gh.optimize(function, nopython=True)
        for _ in range(4):
            captured(x)
        with monkeypatch.context() as patched:
            patched.setattr(interrupts.Held, "begin", lambda self: (held.append(1), begin(self)))
            captured(x)
        assert len(held) == holds


class Counter:
    """A training whose parameters say how many steps they have seen."""

    def __init__(self):
        self.net = nn.Linear(3, 2)
        for p in self.net.parameters():
            p.payload = gh.zeros(p.shape).payload
        self.opt = gh.optim.SGD(self.net.parameters(), lr=1.0)
        self.count = self.ended = self.depth = 0

    def step(self, x):
        self.count += 1
        try:
            with self:
                self.opt.zero_grad()
                loss = sum(-p.sum() for p in self.net.parameters())
                loss.backward()
                self.opt.step()
        finally:
            self.ended += 1
        return loss + x.sum() * 0

    def __enter__(self):
        self.depth += 1

    def __exit__(self, *exc_info):
        self.depth -= 1

    def check(self):
        """As plain Python could leave it: a step is done, or is not, for each parameter."""
        assert (self.ended, self.depth) == (self.count, 0)
        for p in self.net.parameters():
            value = np.unique(p.numpy())
            assert len(value) == 1 and value[0] in (self.count - 1, self.count), (value, self.count)


def check_library():
    """Nothing of the library is left in the middle of something."""
    assert native().set_hook(None) is None
    for number in (signal.SIGALRM, signal.SIGINT):
        assert signal.getsignal(number) is signal.default_int_handler
    assert not interrupts.held.depth and not interrupts.came
    assert not random.observers and not watchers and gc.isenabled()
    assert state.scope is None and state.records and not state.values_hidden and not state.modes
    assert not recorder.varying and recorder.imported is None


def interrupted(work, delay_s: float) -> bool:
    """Whether an interrupt that comes `delay_s` after the start of repeated work is raised."""
    try:
        signal.setitimer(signal.ITIMER_REAL, delay_s)
        for _ in range(ENOUGH):
            work()
    except KeyboardInterrupt:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["eager", "program"])
@pytest.mark.parametrize("warm", [0, 1, 5])
def test_at_any_moment_of_a_training(compiler, warm, capsys):
    x = X(3)
    for trial in range(TRIALS):
        instance = Counter()
        step = gh.optimize(compiler)(instance.step)
        for _ in range(warm):
            step(x)
        longest_s = 0.001 if warm == 5 else 0.03
        assert interrupted(partial(step, x), longest_s * (trial + 1) / TRIALS), trial
        instance.check()
        check_library()
        for _ in range(3):
            step(x)
        instance.check()
        assert instance.net.weight.numpy()[0, 0] in (instance.count, instance.count - 1)
    assert "ignored" not in capsys.readouterr().err


def instructions(fn) -> int:
    """How many instructions a call of fn takes in the interpreter."""
    with counted(None) as count:
        fn()
    return count[0]


class counted:
    """Inside, the interpreter's instructions are counted; the interrupt comes in the n-th."""

    def __init__(self, n):
        self.n = n

    def __enter__(self):
        self.before, count = dict(HANDLERS), [0]

        def counting(handler):
            def run(tracer, f, ins):
                count[0] += 1
                if count[0] == self.n:
                    _thread.interrupt_main()
                return handler(tracer, f, ins)

            return run

        for name, handler in self.before.items():
            HANDLERS[name] = counting(handler)
        return count

    def __exit__(self, *exc_info):
        HANDLERS.update(self.before)


@pytest.mark.slow
def test_in_each_instruction_of_a_capture():
    x = X(3)

    def fresh():
        instance = Counter()
        return instance, gh.optimize("eager")(instance.step)

    count = instructions(lambda: fresh()[1](x))
    assert count > 300
    for n in range(1, count + 1, max(1, count // (2 * TRIALS))):
        instance, step = fresh()
        with counted(n), pytest.raises(KeyboardInterrupt):
            step(x)
        instance.check()
        check_library()
        step(x), step(x)
        instance.check()


def test_what_catches_it_goes_on():
    def fn(x, log):
        try:
            for i in range(5):
                x = gh.sin(x)
                log.append(i)
        except KeyboardInterrupt:
            log.append("stopped")
        return gh.cos(x)

    plain = []
    want = fn(X(3), plain)
    count = instructions(lambda: gh.optimize("eager")(fn)(X(3), []))
    for n in range(5, count + 1, 3):
        fast, log = gh.optimize("eager")(fn), []
        with counted(n):
            try:
                fast(X(3), log)
                assert log[-1] == "stopped" or n > count - 20
            except KeyboardInterrupt:
                assert len(log) in (0, 5)  # before the try, or after it
        for _ in range(3):  # what was seen with the interrupt is not what other calls do
            log = []
            np.testing.assert_allclose(fast(X(3), log).numpy(), want.numpy(), rtol=1e-6)
            assert log == plain
        assert fast.hits


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_in_a_guard_that_runs_python(stop):
    def fn(x, names):
        return x * len(names)

    fast = gh.optimize("eager")(fn)
    fast(X(3), {"a"}), fast(X(3), {"a"})
    entry = next(iter(fast.entries))
    entry = entry() if isinstance(entry, weakref.ref) else entry
    of_set = next(g.value for g in entry.info.guards if g.kind == "call").expected

    class Odd:
        def __hash__(self):
            return hash("a")

        def __eq__(self, other):
            raise stop

    assert of_set == (set, ("a",))
    with pytest.raises(stop):
        fast(X(3), {Odd()})
    assert fast(X(3), {"a", "b"}).shape == (3,)


def test_in_the_callback_of_a_context():
    def inner(x):
        return gh.sin(x)

    for _ in range(50):
        context = gh.optimize("eager")

        def stop(fn, original=context.for_frame):
            if fn is inner:
                _thread.interrupt_main()
            return original(fn)

        context.for_frame = stop
        with pytest.raises(KeyboardInterrupt), context:
            for _ in range(ENOUGH):
                inner(X(3))
        check_library()


def test_in_callbacks_of_weak_references_while_captured():
    class Thing:
        pass

    def stop(ref):
        _thread.interrupt_main()
        for _ in range(10):  # where Python looks for signals
            pass

    def fn(x, things, refs):
        y = gh.sin(x)
        things.clear()
        return gh.cos(y)

    fast = gh.optimize("eager")(fn)
    for _ in range(10):
        things = [Thing()]
        refs = [weakref.ref(things[0], stop)]
        gh.capture.reset()
        with pytest.raises(KeyboardInterrupt):
            fast(X(3), things, refs)
        check_library()


def test_while_a_compiler_runs_behind_a_break():
    instance = Counter()

    def compiler(gm, example_inputs):
        _thread.interrupt_main()
        for _ in range(10):
            pass
        return gm.forward

    @gh.optimize(compiler)
    def fn(x):
        with instance, gh.no_grad():
            y = gh.sin(x)
            gh.graph_break()
            return gh.cos(y)

    for _ in range(5):
        with pytest.raises(KeyboardInterrupt):
            fn(X(3))
        assert not instance.depth
        check_library()


def test_signals_wait_and_nest():
    with pytest.raises(KeyboardInterrupt), interrupts.held:
        with interrupts.held:
            _thread.interrupt_main()
        value = True
    assert value
    with pytest.raises(KeyboardInterrupt), interrupts.held:
        _thread.interrupt_main()
        with interrupts.let_through():
            raise AssertionError("it waited")
    with pytest.raises(KeyboardInterrupt), interrupts.held:
        _thread.interrupt_main()
        _thread.interrupt_main()
        raise AssertionError("the second one waited")
    check_library()


def test_other_threads_hold_nothing():
    inside, done = threading.Event(), threading.Event()

    def other():
        with interrupts.held:
            inside.set()
            done.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(10)
    with pytest.raises(KeyboardInterrupt):
        _thread.interrupt_main()
        for _ in range(1000):
            pass
    done.set()
    thread.join()


def test_at_any_moment_of_a_hold():
    def work():
        with interrupts.held, interrupts.let_through():
            pass

    for trial in range(20 * TRIALS):
        assert interrupted(work, 1e-5 + 1e-7 * trial)
        check_library()
