"""`super()` where there is nothing to bind it to: the error is plain Python's."""

import pytest

import glasshouse as gh


class Odd:
    @staticmethod
    def of_none():
        return super().__init__()

    def of_stars(*args):
        return super().__init__()

    def of_words(*, a=1):
        return super().__init__()

    def of_deleted(self):
        del self
        return super()

    def of_none_behind_a_break():
        print(end="")
        return super()

    def of_stars_behind_a_break(*args):
        print(end="")
        return super()

    def of_deleted_behind_a_break(self):
        print(end="")
        del self
        return super()

    def right_behind_a_break(self):
        print(end="")
        return super().__init__()


CALLS = {
    "of_none": lambda f: f(),
    "of_stars": lambda f: f(Odd(), 1),
    "of_words": lambda f: f(a=2),
    "of_deleted": lambda f: f(Odd()),
    "of_none_behind_a_break": lambda f: f(),
    "of_stars_behind_a_break": lambda f: f(1),
    "of_deleted_behind_a_break": lambda f: f(Odd()),
    "right_behind_a_break": lambda f: f(Odd()),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("way", ["inlined", "itself", "caught"])
def test_super_says_what_is_missing(name, way):
    def caught(f):
        try:
            return CALLS[name](f)
        except RuntimeError as error:
            return str(error)

    def outcome(capture):
        plain = getattr(Odd, name)
        inner = capture(plain) if way == "itself" else plain
        call = caught if way == "caught" else CALLS[name]
        outer = call if way == "itself" else capture(call)
        results = []
        for _ in range(3):
            try:
                results.append(outer(inner))
            except RuntimeError as error:
                results.append(repr(error))
        return results

    assert outcome(gh.optimize("eager")) == outcome(lambda f: f)
