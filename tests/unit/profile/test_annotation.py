"""Annotations, made fast by C and as their slow clear twin: regions of the user's by name."""

import gc
import sys
import threading
import weakref

import pytest

import glasshouse as gh
from glasshouse.base.flags import flags
from glasshouse.compile.building import toolchain
from glasshouse.dispatch.bind import watchers
from glasshouse.dispatch.watch import Watcher
from glasshouse.profile import annotation
from glasshouse.profile.annotation import Annotation, quicken

pytestmark = pytest.mark.quick


class Told(Watcher):
    """Notes the names of annotations and when they began."""

    def __init__(self):
        self.regions = []

    def __enter__(self):
        self.watch()
        return self

    def __exit__(self, *exc_info):
        self.unwatch()

    def annotation(self, name, begin_ns):
        self.regions.append((name, begin_ns))

    @property
    def names(self):
        return [name for name, _ in self.regions]


@pytest.fixture(params=["twin", "quick", "derived"])
def make(request):
    if request.param == "twin":
        return Annotation
    with gh.record_function("warm"):
        pass
    own = type("Own", (gh.record_function,), {})
    return gh.record_function if request.param == "quick" else own


def test_c_takes_over_where_it_compiles():
    with gh.record_function("first"):
        pass
    exit_ = gh.record_function.__exit__
    try:
        toolchain.find_compiler()
    except toolchain.CompileError:
        assert exit_ is Annotation.__exit__
    else:
        assert type(exit_).__name__ == "method_descriptor"


def test_without_a_compiler_the_twin_works(monkeypatch):
    def refuse(path):
        raise toolchain.CompileError("no compiler")

    class own(Annotation):
        __slots__ = ()

    monkeypatch.setattr(annotation, "record_function", own)
    monkeypatch.setattr(toolchain, "extension", refuse)
    quicken()
    with Told() as listener, own("a"):
        pass
    assert listener.names == ["a"] and own.__enter__ is Annotation.__enter__


def test_regions_are_told_as_they_end(make):
    with make("before"):
        pass
    with Told() as listener, make("outer"), make("inner") as inner:
        assert inner.name == "inner"
    (_, inner_ns), (_, outer_ns) = listener.regions
    assert listener.names == ["inner", "outer"] and outer_ns < inner_ns


def test_names_are_text(make):
    with Told() as listener, make(7), make(name="word"):
        pass
    assert listener.names == ["word", "7"]
    assert repr(make("a")) == f"{make.__name__}('a')"
    for wrong in ((), ("a", "b")):
        with pytest.raises(TypeError, match=r"__init__\(\)"):
            make(*wrong)
    with pytest.raises(TypeError, match="unexpected keyword"):
        make("a", size=3)


def test_an_exception_passes_and_ends_the_region(make):
    for watch in (False, True):
        listener = Told()
        with pytest.raises(ZeroDivisionError):
            if watch:
                with listener, make("fails"):
                    raise ZeroDivisionError
            with make("fails"):
                raise ZeroDivisionError
        assert listener.names == ["fails"] * watch


def test_decorated_functions_keep_their_names_and_may_recurse(make):
    @make("sum")
    def total(n):
        """n + ... + 1"""
        return n and n + total(n - 1)

    with Told() as listener:
        assert total(3) == 6
    assert listener.names == ["sum"] * 4 and total.__name__ == "total" and "..." in total.__doc__
    begins = [begin_ns for _, begin_ns in listener.regions]
    assert begins == sorted(begins, reverse=True)
    assert total(2) == 3


def test_decorated_generators_are_regions_from_first_to_last(make):
    @make("batches")
    def batches():
        value = yield 1
        yield value
        return 3

    with Told() as listener:
        first, second = batches(), batches()
        next(first), next(second)
        assert first.send(2) == 2 and listener.names == []
        with pytest.raises(StopIteration) as stop:
            next(first)
        assert stop.value.value == 3 and listener.names == ["batches"]
        second.close()
    (_, begin_ns), (_, later_ns) = listener.regions
    assert begin_ns < later_ns


def test_a_region_that_a_watcher_saw_in_part_begins_or_ends_there(make):
    region, listener = make("part"), Told()
    with region, listener:
        pass
    assert listener.names == []
    with region:
        listener.watch()
    listener.unwatch()
    assert listener.names == ["part"]
    listener.watch()
    with region:
        listener.unwatch()
    assert listener.names == ["part"] and region.begun == ()
    begin_ns = listener.regions[0][1]
    with listener, region:
        pass
    assert listener.regions[1][1] > begin_ns  # what was left over is not taken up


def test_one_annotation_within_itself_and_in_threads(make):
    region = make("shared")
    gate = threading.Barrier(2)

    def work():
        with region:
            gate.wait(10)

    with Told() as listener:
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with region, region:
            pass
    begins = [begin_ns for _, begin_ns in listener.regions]
    assert len(set(begins)) == 4 and begins[2] > begins[3] and region.begun == ()


def test_nothing_is_left_behind(make):
    name = "a name " + "of its own"
    before = sys.getrefcount(name)
    for _ in range(100):
        with make(name):
            pass
    with Told():
        for _ in range(100):
            with make(name):
                pass
    assert sys.getrefcount(name) == before

    class Held(gh.record_function):
        pass

    held = Held("cycle")
    held.itself, ref = held, weakref.ref(held)
    del held
    gc.collect()
    assert ref() is None


def test_derived_classes_may_add_to_it():
    class Own(gh.record_function):
        entered = 0

        def __init__(self, name, size):
            super().__init__(f"{name} {size}")

        def __enter__(self):
            self.entered += 1
            return super().__enter__()

        def __exit__(self, *exc_info):
            super().__exit__(*exc_info)
            return True

    assert not watchers
    with Told() as listener, Own("a", 3) as own:
        raise ZeroDivisionError
    assert listener.names == ["a 3"] and own.entered == 1


def test_captured_functions_keep_their_annotations():
    def work(x):
        with gh.record_function("captured part"):
            y = gh.sin(x)
        return y * 2

    with gh.record_function("warm"):  # by now it is made of C
        pass
    fast = gh.optimize("eager", nopython=True)(work)
    x = gh.ones(3)
    with flags.override(compile="always"):  # references of sine end in other bits
        for _ in range(3):
            assert fast(x).tolist() == work(x).tolist()
    with Told() as listener:
        fast(x)
    assert listener.names == ["captured part"]
