"""The JavaScript of a page is made once, and read from the cache of this user alone."""

from __future__ import annotations

import pytest

from unruly.drawing import bundle

MADE = "window.drawn = 'π';"


@pytest.fixture
def makings(monkeypatch, tmp_path):
    """Every making of the bundle, with an empty cache folder."""
    makings = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(bundle, "_made", lambda: makings.append(MADE) or MADE)
    return makings


def _file(tmp_path):
    (file,) = (tmp_path / "unruly").iterdir()
    return file


def test_the_second_page_reads_the_bundle_of_the_first(makings):
    assert [bundle.bundle(), bundle.bundle()] == [MADE, MADE]
    assert makings == [MADE]


@pytest.mark.parametrize("harm", [lambda text: text[:-5], lambda text: text + b" ", lambda _: b""])
def test_a_file_that_is_not_whole_is_made_again(makings, tmp_path, harm):
    bundle.bundle()
    file = _file(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(harm(whole))
    assert bundle.bundle() == MADE
    assert file.read_bytes() == whole
    assert makings == [MADE, MADE]


def test_a_folder_into_which_others_may_write_is_not_read(makings, tmp_path):
    bundle.bundle()
    (tmp_path / "unruly").chmod(0o777)
    assert bundle.bundle() == MADE
    assert makings == [MADE, MADE]


@pytest.mark.parametrize("place", ["", "relative", "/dev/null"])
def test_without_a_folder_the_bundle_is_made_each_time(makings, monkeypatch, place):
    monkeypatch.setenv("XDG_CACHE_HOME", place)
    monkeypatch.delenv("HOME")
    assert [bundle.bundle(), bundle.bundle()] == [MADE, MADE]
    assert makings == [MADE, MADE]
