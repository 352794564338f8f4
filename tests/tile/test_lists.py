"""Splits that are published as lists of images, or as folders."""

from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from landbalance.config import ListSplit
from landbalance.errors import UserError
from landbalance.tile.columns import splits_of_images

IMAGES = [PurePosixPath(path) for path in ("Forest/Forest_1.tif", "Forest/Forest_2.tif", "River/River_1.tif")]


def splits(source: Path, **entries: Any) -> list[int]:
    return splits_of_images(ListSplit(by="list", **entries), source, IMAGES).tolist()


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    """Return a folder with lists as EuroSAT has them: of JPEG names, here for GeoTIFFs."""
    (tmp_path / "train.txt").write_text("Forest_1.jpg\nRiver_1.jpg\nGone_9.jpg\n")
    (tmp_path / "test.txt").write_text("\nForest/Forest_2\n")
    return tmp_path


def test_lists_name_images_with_any_suffix(lists: Path) -> None:
    assert splits(lists, train=["train.txt"], test=["test.txt"]) == [0, 2, 0]


def test_a_point_in_a_name_begins_no_suffix(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("airport_1.0\nairport_2.0.JPG\n")
    (tmp_path / "test.txt").write_text("airport_1.5\n")
    images = [PurePosixPath("airport", f"airport_{name}.tif") for name in ("1.0", "1.5", "2.0")]
    split = ListSplit(by="list", train=["train.txt"], test=["test.txt"])
    assert splits_of_images(split, tmp_path, images).tolist() == [0, 2, 0]


def test_patterns_mean_folders(tmp_path: Path) -> None:
    assert splits(tmp_path, train=["Forest/*_1*"], validation=["Forest/*_2*"], test=["River/*"]) == [0, 1, 2]


def test_an_image_in_no_list_is_left_out(lists: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert splits(lists, train=["test.txt"], validation=["River/*"]) == [-1, 0, 1]
    assert "1 of 3 images are in no list and left out" in caplog.text


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"train": ["gone.txt"]}, r"gone\.txt: cannot be read \(split\.train\)"),
        ({"train": ["Train/*"]}, r"split\.train: Train/\* means none of the 3 images.* Forest/Forest_1\.tif"),
        (
            {"train": ["train.txt"], "test": ["River/*"]},
            r"River/River_1\.tif is in train and, by River/\*, in test \(1 images are in two",
        ),
    ],
)
def test_a_mistake_is_named(lists: Path, entries: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        splits(lists, **entries)
