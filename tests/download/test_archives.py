import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from download_samples import entry, tarred, zipped
from landbalance.download.archives import is_archive
from landbalance.errors import UserError


@pytest.mark.parametrize("name", ["a.zip", "A.ZIP", "a-1.0-py3-none-any.whl", "a.tar", "a.tar.gz", "a.tgz", "a.tar.xz"])
def test_a_name_says_that_a_broken_file_is_an_archive(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"cut")
    assert is_archive(path, name)


@pytest.mark.parametrize("name", ["a.npz", "a.kmz", "a.tif", "a.gpkg", "a.tif.gz"])
def test_data_that_are_zip_files_inside_stay_data(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(zipped({"a": b"1"}))
    assert not is_archive(path, name)


@pytest.mark.parametrize("content", [zipped({"a": b"1"}), tarred([(entry("a"), b"1")], "gz")], ids=["zip", "tar.gz"])
def test_content_decides_where_the_name_says_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "content"
    path.write_bytes(content)
    assert is_archive(path, "content")
    assert is_archive(path, "EuroSAT-v1.0")
    path.write_bytes(b"no archive")
    assert not is_archive(path, "content")


@pytest.mark.parametrize("name", ["a.rar", "a.7z", "a.tar.zst"])
def test_an_archive_of_another_kind_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"cannot be unpacked here.*by hand"):
        is_archive(tmp_path / name, name)


def test_samples_are_what_they_say() -> None:
    """The other tests rest on these bytes."""
    with zipfile.ZipFile(io.BytesIO(zipped({"../a": b"1"}))) as archive:
        assert archive.namelist() == ["../a"]
    with tarfile.open(fileobj=io.BytesIO(tarred([(entry("l", tarfile.SYMTYPE, "/etc"), b"")]))) as tar:
        assert tar.getmembers()[0].issym()
