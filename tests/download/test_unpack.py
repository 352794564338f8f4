import errno
import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from download_samples import entry, sha256, tarred, tree, zipped
from landbalance.download import unpack as module
from landbalance.download.manifest import FileRecord
from landbalance.download.unpack import size_limit, unpack
from landbalance.errors import UserError

FILES = {"top/a.txt": b"a" * 3000, "top/sub/b.bin": bytes(range(256)), "c.txt": b""}


def unpacked(tmp_path: Path, name: str, content: bytes, patterns: Sequence[str] = ()) -> list[FileRecord]:
    """Unpack into tmp_path/out/in, so that a step outside would be seen in tmp_path/out."""
    archive = tmp_path / name
    archive.write_bytes(content)
    folder = tmp_path / "out" / "in"
    folder.mkdir(parents=True)
    return unpack(archive, name, folder, patterns, "datasets.d.sources.0")


def outside(tmp_path: Path) -> list[str]:
    return [path for path in tree(tmp_path / "out") if not path.startswith("in")]


def link_in_zip(name: str, target: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz", "a.tar.bz2", "a.tar.xz"])
def test_all_files_come_out_as_they_went_in(tmp_path: Path, name: str) -> None:
    compression = name.partition(".tar.")[2]
    content = zipped(FILES) if name == "a.zip" else tarred([(entry(k), v) for k, v in FILES.items()], compression)
    records = unpacked(tmp_path, name, content)
    assert {record.path: (record.bytes, record.sha256) for record in records} == {
        path: (len(content), sha256(content)) for path, content in FILES.items()
    }
    for path, content in FILES.items():
        assert (tmp_path / "out" / "in" / path).read_bytes() == content


def test_folders_dots_and_backslashes_in_names(tmp_path: Path) -> None:
    unpacked(tmp_path, "a.zip", zipped({"./d/": b"", "./d/a": b"1", "e\\f": b"2", "g//h": b"3"}))
    assert tree(tmp_path / "out/in") == ["d", "d/a", "e", "e/f", "g", "g/h"]


def test_an_entry_given_twice_is_the_later_one(tmp_path: Path) -> None:
    (record,) = unpacked(tmp_path, "a.tar", tarred([(entry("a"), b"old"), (entry("a"), b"new")]))
    assert record.sha256 == sha256(b"new")


@pytest.mark.parametrize(
    ("patterns", "wanted"),
    [
        (["top/*"], ["top/a.txt", "top/sub/b.bin"]),
        (["top"], ["top/a.txt", "top/sub/b.bin"]),
        (["top/sub/"], ["top/sub/b.bin"]),
        (["*.txt"], ["c.txt", "top/a.txt"]),
        (["c.???", "*/b.bin"], ["c.txt", "top/sub/b.bin"]),
    ],
)
@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_members_choose_entries(tmp_path: Path, name: str, patterns: list[str], wanted: list[str]) -> None:
    content = zipped(FILES) if name == "a.zip" else tarred([(entry("./" + k), v) for k, v in FILES.items()], "gz")
    assert sorted(record.path for record in unpacked(tmp_path, name, content, patterns)) == wanted


def test_a_pattern_that_matches_nothing_is_an_error_that_names_it_and_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"sources\.0\.members: nothing in a\.zip matches Top/\*\. .*top/a\.txt"):
        unpacked(tmp_path, "a.zip", zipped(FILES), ["c.txt", "Top/*"])


@pytest.mark.parametrize("bad", ["../evil", "/evil", "a/../../evil", "..", "C:\\evil", "C:/evil", "..\\evil"])
def test_a_zip_entry_that_leaves_the_folder_stops_the_stage(tmp_path: Path, bad: str) -> None:
    with pytest.raises(UserError, match=r"a\.zip: the entry .* would leave"):
        unpacked(tmp_path, "a.zip", zipped({"good": b"1", bad: b"2"}))
    assert outside(tmp_path) == []


@pytest.mark.parametrize("bad", ["../evil", "/tmp/evil", "a/../../evil"])
def test_a_tar_entry_that_leaves_the_folder_stops_the_stage(tmp_path: Path, bad: str) -> None:
    with pytest.raises(UserError, match=rf"a\.tar: the entry '{bad}' would leave"):
        unpacked(tmp_path, "a.tar", tarred([(entry("good"), b"1"), (entry(bad), b"2")]))
    assert outside(tmp_path) == []


def test_an_evil_entry_that_is_not_chosen_does_no_harm(tmp_path: Path) -> None:
    (record,) = unpacked(tmp_path, "a.zip", zipped({"../evil": b"2", "good": b"1"}), ["good"])
    assert record.path == "good"
    assert outside(tmp_path) == []


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
@pytest.mark.parametrize("target", ["/etc/passwd", "../secret", "d/../../secret"])
def test_a_link_to_the_outside_stops_the_stage(tmp_path: Path, kind: bytes, target: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "secret").write_text("s")
    archive = tmp_path / "a.tar"
    archive.write_bytes(tarred([(entry("d/f"), b"1"), (entry("link", kind, target), b"")]))
    folder = tmp_path / "out" / "in"
    folder.mkdir()
    with pytest.raises(UserError, match=rf"a\.tar: the entry link is a .*link to {target}, outside"):
        unpack(archive, "a.tar", folder, [], "k")
    assert not (folder / "link").is_symlink()


def test_a_zip_symlink_to_the_outside_stops_the_stage(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(link_in_zip("link", "../x"), "../x")
    with pytest.raises(UserError, match=r"the entry link is a symlink to \.\./x, outside"):
        unpacked(tmp_path, "a.zip", buffer.getvalue())


def test_no_file_is_written_through_a_link(tmp_path: Path) -> None:
    """The classic: a link to the outside, then a file below it."""
    content = tarred([(entry("d", tarfile.SYMTYPE, ".."), b""), (entry("d/evil"), b"2")])
    with pytest.raises(UserError, match=r"a\.tar"):
        unpacked(tmp_path, "a.tar", content)
    assert outside(tmp_path) == []


def test_links_that_leave_only_together_stop_the_stage(tmp_path: Path) -> None:
    """p/q → .., then p/s → q/..: by its letters the second is p, on disk it is above the root."""
    content = tarred(
        [
            (entry("f"), b"1"),
            (entry("p/f"), b"1"),
            (entry("p/q", tarfile.SYMTYPE, ".."), b""),
            (entry("p/s", tarfile.SYMTYPE, "q/.."), b""),
        ]
    )
    with pytest.raises(UserError, match=r"the entry p/s is a symlink to q/.., outside"):
        unpacked(tmp_path, "a.tar", content)


def test_links_inside_are_kept(tmp_path: Path) -> None:
    content = tarred(
        [
            (entry("latest", tarfile.SYMTYPE, "v1/a"), b""),
            (entry("v1/a"), b"1"),
            (entry("current", tarfile.SYMTYPE, "v1"), b""),
            (entry("v1/same", tarfile.LNKTYPE, "v1/a"), b""),
        ]
    )
    records = unpacked(tmp_path, "a.tar.gz", content)
    folder = tmp_path / "out/in"
    assert sorted(record.path for record in records) == ["latest", "v1/a", "v1/same"]
    assert {record.sha256 for record in records} == {sha256(b"1")}
    assert (folder / "latest").read_bytes() == (folder / "current/a").read_bytes() == b"1"
    assert (folder / "v1/same").stat().st_ino != (folder / "v1/a").stat().st_ino


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_a_link_to_what_is_not_chosen_is_named(tmp_path: Path, kind: bytes) -> None:
    content = tarred([(entry("a"), b"1"), (entry("b", kind, "a"), b"")])
    with pytest.raises(UserError, match=r"the entry b is a .*link to a, which is not unpacked"):
        unpacked(tmp_path, "a.tar", content, ["b"])


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_a_device_or_pipe_stops_the_stage(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(UserError, match=r"a\.tar: the entry dev/null is a device or pipe"):
        unpacked(tmp_path, "a.tar", tarred([(entry("dev/null", kind), b"")]))


def test_permissions_of_the_archive_are_ignored(tmp_path: Path) -> None:
    info = entry("a")
    info.mode, info.uid = 0o6777, 4242
    unpacked(tmp_path, "a.tar", tarred([(info, b"1")]))
    status = (tmp_path / "out/in/a").stat()
    assert status.st_mode & 0o6111 == 0
    assert status.st_uid == os.getuid()


def test_a_link_of_an_earlier_source_is_not_followed(tmp_path: Path) -> None:
    """The user's own folder, linked by another source, is never written into."""
    own = tmp_path / "own"
    own.mkdir()
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "data").symlink_to(own)
    archive = tmp_path / "a.zip"
    archive.write_bytes(zipped({"data/x": b"1"}))
    with pytest.raises(UserError, match="the entry data/x stands where"):
        unpack(archive, "a.zip", folder, [], "k")
    assert tree(own) == []


def test_a_file_of_an_earlier_source_is_not_overwritten(tmp_path: Path) -> None:
    archive, folder = tmp_path / "a.zip", tmp_path / "in"
    archive.write_bytes(zipped({"x": b"new"}))
    folder.mkdir()
    (folder / "x").write_bytes(b"old")
    with pytest.raises(UserError, match="the entry x stands where"):
        unpack(archive, "a.zip", folder, [], "k")
    assert (folder / "x").read_bytes() == b"old"


def test_a_file_and_a_folder_of_one_name_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the entry a/b stands where"):
        unpacked(tmp_path, "a.zip", zipped({"a": b"1", "a/b": b"2"}))


def test_an_archive_may_not_take_the_name_of_the_manifest(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    records = unpacked(tmp_path, "a.zip", zipped({"manifest.json": b"{}", "d/manifest.json": b"{}"}))
    assert [record.path for record in records] == ["d/manifest.json"]
    assert "manifest.json is left out" in caplog.text


@pytest.mark.parametrize("compression", ["", "gz", "bz2", "xz"])
def test_a_truncated_tar_is_an_error_wherever_it_is_cut(tmp_path: Path, compression: str) -> None:
    content = tarred([(entry(f"f{i}"), os.urandom(2048)) for i in range(4)], compression)
    if not compression:
        content = content[: 4 * (512 + 2048) + 512]  # without the padding to 10240, which may be missing
    archive, folder = tmp_path / "a.tar", tmp_path / "in"
    for length in (0, 100, 512, 2560, 5000, 5120, 5121, 7680, len(content) - 520, len(content) - 1):
        archive.write_bytes(content[:length])
        folder.mkdir(exist_ok=True)
        with pytest.raises(UserError, match=r"k: a\.tar: truncated, damaged or no such archive after \d"):
            unpack(archive, "a.tar", folder, [], "k")
        module.files.remove(folder)


@pytest.mark.parametrize("length", [0, 50, 1000, -30, -1])
def test_a_truncated_zip_is_an_error(tmp_path: Path, length: int) -> None:
    content = zipped({"a": os.urandom(3000), "b": b"2"})
    with pytest.raises(UserError, match=r"a\.zip: truncated, damaged or no such archive"):
        unpacked(tmp_path, "a.zip", content[:length])


@pytest.mark.parametrize("compression", ["gz", "bz2", "xz"])
def test_a_flipped_byte_in_a_compressed_tar_is_an_error(tmp_path: Path, compression: str) -> None:
    content = bytearray(tarred([(entry("a"), os.urandom(5000))], compression))
    content[len(content) // 2] ^= 0xFF
    with pytest.raises(UserError, match=r"a\.tar: truncated, damaged"):
        unpacked(tmp_path, "a.tar", bytes(content))


def test_a_damaged_header_is_an_error(tmp_path: Path) -> None:
    """Python's tarfile stops there silently, as if the archive ended."""
    content = bytearray(tarred([(entry("a"), b"1"), (entry("b"), b"2")]))
    content[1024] ^= 0xFF
    with pytest.raises(UserError, match="damaged header"):
        unpacked(tmp_path, "a.tar", bytes(content))


def test_a_flipped_byte_in_a_zip_is_an_error(tmp_path: Path) -> None:
    content = bytearray(zipped({"a": os.urandom(5000)}))
    content[2500] ^= 0xFF
    with pytest.raises(UserError, match=r"a\.zip: truncated, damaged.*CRC|invalid"):
        unpacked(tmp_path, "a.zip", bytes(content))


def test_an_encrypted_zip_is_named_as_such(tmp_path: Path) -> None:
    content = bytearray(zipped({"a": b"1"}))
    content[content.index(b"PK\x01\x02") + 8] |= 1
    content[6] |= 1
    with pytest.raises(UserError, match="the entry a is encrypted"):
        unpacked(tmp_path, "a.zip", bytes(content))


def test_an_unknown_compression_says_how_to_go_on(tmp_path: Path) -> None:
    content = bytearray(zipped({"a": b"1"}))
    content[content.index(b"PK\x01\x02") + 10] = 9  # deflate64, which Windows takes for large files
    content[8] = 9
    with pytest.raises(UserError, match=r"cannot be read here.*by hand"):
        unpacked(tmp_path, "a.zip", bytes(content))


def test_an_empty_archive_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no files in it"):
        unpacked(tmp_path, "a.zip", zipped({}))


def test_the_size_limit_is_as_stated() -> None:
    assert size_limit(1000) == 2**30
    assert size_limit(2**30) == 200 * 2**30


@pytest.mark.parametrize("kind", ["one", "many", "links"])
def test_an_archive_that_swells_is_refused_before_it_fills_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(module, "_LEAST_LIMIT", 1 << 20)
    monkeypatch.setattr(module, "_SWELLING", 2)
    big = b"\0" * (1 << 19)
    content = {
        "one": zipped({"a": big * 5}),
        "many": tarred([(entry(f"f{i}"), big) for i in range(5)], "gz"),
        "links": tarred([(entry("f"), big)] + [(entry(f"l{i}", tarfile.LNKTYPE, "f"), b"") for i in range(5)], "gz"),
    }[kind]
    with pytest.raises(UserError, match=r"unpacks to more than .* GiB, the limit"):
        unpacked(tmp_path, "a.zip" if kind == "one" else "a.tgz", content)
    assert sum(path.stat().st_size for path in (tmp_path / "out").rglob("*") if path.is_file()) <= 1 << 20


def test_empty_files_count_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Millions of them fill a disk's table of files."""
    monkeypatch.setattr(module, "_LEAST_LIMIT", 1 << 12)
    monkeypatch.setattr(module, "_SWELLING", 0)
    content = tarred([(entry(f"f{i}"), b"") for i in range(9)], "gz")
    with pytest.raises(UserError, match=r"unpacks to more than .* GiB, the limit"):
        unpacked(tmp_path, "a.tgz", content)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("tar", "caf\udce9.tif"),
        ("tar", "two\nlines"),
        ("tar", "\x1b[31mred"),
        ("zip", "\x1b[31mred"),
        ("zip", "a\u2028b"),
    ],
)
def test_a_name_that_is_no_text_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    """Latin-1 names in a tar, and names that would play tricks with a terminal."""
    content = tarred([(entry(name), b"1")]) if kind == "tar" else zipped({name: b"1"})
    with pytest.raises(UserError) as caught:
        unpacked(tmp_path, f"a.{kind}", content)
    assert f"a.{kind}: the entry {name!r} has a name with control characters, or that is not UTF-8" in str(caught.value)
    assert str(caught.value).isprintable()
    assert tree(tmp_path / "out/in") == []


def test_a_name_that_is_no_text_may_be_left_out(tmp_path: Path) -> None:
    (record,) = unpacked(tmp_path, "a.tar", tarred([(entry("caf\udce9"), b"1"), (entry("good"), b"2")]), ["good"])
    assert record.path == "good"


def test_umlauts_are_text(tmp_path: Path) -> None:
    records = unpacked(tmp_path, "a.tar", tarred([(entry("Höhe/größe 1.txt"), b"1")]))
    assert [record.path for record in records] == ["Höhe/größe 1.txt"]


def test_a_name_too_long_for_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.zip: an entry has a name of 300 characters \(aaaa"):
        unpacked(tmp_path, "a.zip", zipped({"d/" + "a" * 300: b"1"}))


def test_a_full_disk_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "copied", full)
    with pytest.raises(OSError, match="No space left") as caught:
        unpacked(tmp_path, "a.zip", zipped(FILES))
    assert caught.value.errno == errno.ENOSPC
