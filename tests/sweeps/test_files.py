"""Files are complete or not there."""

import errno
import os
import stat

import pytest

from loca_theory import ResourceError
from loca_theory.sweeps.files import writable_folder, write_atomically


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_while_writing_a_reader_sees_the_earlier_content(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write(temporary):
        temporary.write_text("ne")
        assert path.read_text() == "old"
        assert temporary.parent == path.parent, "a rename across file systems is none"
        assert temporary.name.startswith("a.")
        assert temporary.name.endswith(".txt.partial")
        temporary.write_text("new")

    write_atomically(path, write)
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a.txt"]


FULL = OSError(errno.ENOSPC, "No space left on device")
FAILURES = [
    (FULL, ResourceError, r"cannot write .*a\.txt: No space left on device; choose another fol"),
    (OSError("odd"), ResourceError, r"cannot write .*: odd;"),
    (KeyboardInterrupt("now"), KeyboardInterrupt, "now"),
]


@pytest.mark.parametrize(("raised", "expected", "message"), FAILURES)
@pytest.mark.parametrize("earlier", [None, "old"], ids=["new", "replaced"])
def test_a_failed_write_leaves_things_as_they_were(tmp_path, earlier, raised, expected, message):
    path = tmp_path / "a.txt"
    if earlier:
        path.write_text(earlier)

    def write(temporary):
        temporary.write_text("half")
        raise raised

    with pytest.raises(expected, match=message):
        write_atomically(path, write)
    assert names(tmp_path) == (["a.txt"] if earlier else [])
    assert earlier is None or path.read_text() == earlier


@pytest.mark.skipif(os.name != "posix", reason="permission bits of POSIX")
@pytest.mark.parametrize("mask", [0o002, 0o077], ids=oct)
def test_the_users_mask_holds(tmp_path, mask):
    """Also for a file that its writer makes for the owner alone, as safetensors does."""
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "a.txt", lambda path: path.touch(0o600))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o666 & ~mask


def test_a_writable_folder_is_made_with_its_parents_or_refused(tmp_path, monkeypatch):
    folder = writable_folder(tmp_path / "a" / "b")
    assert (folder, names(folder)) == (tmp_path / "a" / "b", [])
    assert writable_folder(folder) == folder
    (tmp_path / "file").write_text("kept")
    for below in ("", "deeper"):
        with pytest.raises(ResourceError, match=r"cannot write to .*file is a file; choose anot"):
            writable_folder(tmp_path / "file" / below)
    assert (tmp_path / "file").read_text() == "kept"

    def refuse(*_, **__):
        # As root no permission bit refuses, so the system's refusal is played.
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    with pytest.raises(ResourceError, match=r"cannot write to .*: Permission denied; choose"):
        writable_folder(tmp_path)
