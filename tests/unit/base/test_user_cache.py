"""The folder that a user's programs keep files in that can be made again."""

from pathlib import Path

from glasshouse.base.flags import user_cache_folder
from glasshouse.compile.building import disk_cache


def test_an_absolute_xdg_cache_home_is_taken():
    assert user_cache_folder({"XDG_CACHE_HOME": "/somewhere/else"}) == Path("/somewhere/else")
    for named in ("", "relative"):
        assert user_cache_folder({"XDG_CACHE_HOME": named}) == Path.home() / ".cache"
    assert user_cache_folder({}) == Path.home() / ".cache"


def test_compiled_code_lies_in_it(monkeypatch):
    monkeypatch.setattr(disk_cache, "user_cache_folder", lambda: Path("/somewhere/else"))
    with disk_cache.flags.override(cache=""):
        assert disk_cache.cache_folder() == Path("/somewhere/else/glasshouse")
