"""Settings of tiles and splits: how scenes are cut, and what is for training, validation and testing."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from landbalance.config.base import Positive, Settings, Share, Text

_Values = list[str | int]


class Tiles(Settings):
    """How a scene is cut into tiles, and which of them are taken."""

    size: Positive = Field(64, description="Width and height of a tile in pixels.")
    stride: Positive | None = Field(
        None, description="Pixels from one tile to the next; the tile's size when not given."
    )
    labelled: Share = Field(
        0.0,
        description="Least share of a tile's pixels that must carry a label: any label at all when 0. "
        "In `classification` the majority class must reach this share.",
    )
    per_class: Positive | None = Field(
        None,
        description="Most training tiles of a class, drawn at random; a tile counts for the class that most of its "
        "labels have. Validation and test stay as they are.",
    )
    balance: bool = Field(
        False, description="Take as many training tiles of each class as there are of the rarest, drawn at random."
    )


class _Shares(Settings):
    """Wanted shares of the splits."""

    train: Share = Field(0.6, description="Share of the labels to train on.")
    validation: Share = Field(0.2, description="Share of the labels to choose settings by.")
    test: Share = Field(0.2, description="Share of the labels to judge by.")
    seed: int = Field(0, description="Seed of the draw.")

    @model_validator(mode="after")
    def _sum(self) -> Self:
        total = sum(self.wanted)
        if abs(total - 1) > 1e-6:
            raise ValueError(f"train + validation + test must be 1 (found {total:g})")
        if self.train == 0:
            raise ValueError("train must be above 0")
        return self

    @property
    def wanted(self) -> Sequence[float]:
        """Return the shares of train, validation and test."""
        return (self.train, self.validation, self.test)


_BUFFER = Field(
    0,
    ge=0,
    description="Least distance, in pixels, between labelled pixels of different splits: labels "
    "closer to a test or validation label are left out of training.",
)


class BlockSplit(_Shares):
    """Splits scenes by square blocks, so that neighbours do not stand in different splits."""

    by: Literal["block"] = Field(description="Blocks of a scene's pixels.")
    size: Positive = Field(description="Width and height of a block in pixels; at least a tile.")
    buffer: int = _BUFFER


class PolygonSplit(_Shares):
    """Splits scenes by the polygons (or points) of their labels; a tile is in the split of most of its labels."""

    by: Literal["polygon"] = Field(description="Whole polygons of the labels.")
    buffer: int = _BUFFER


class SceneSplit(_Shares):
    """Splits by whole scenes; those that share ground stay together."""

    by: Literal["scene"] = Field(description="Whole scenes.")


class RandomSplit(_Shares):
    """Splits samples at random within each class; only right where samples do not touch."""

    by: Literal["sample"] = Field(description="Single samples, in the same proportion for each class.")


class ColumnSplit(Settings):
    """Takes splits that somebody has made: from a field of the labels, or from a table of scenes or images."""

    by: Literal["column"] = Field(description="A column that names the split.")
    column: Text = Field(description="The column: a field of the labels' polygons or points, or one of `file`.")
    file: Text | None = Field(
        None,
        description="A table (.csv or .parquet) below the download folder with a row for each scene, or for each image "
        "in folders. The labels' own field when not given.",
    )
    key: Text | None = Field(
        None,
        description="The column of `file` with the scenes' names, or with the images' paths below `folders.path`, "
        "their file names, or these without suffix; its first column when not given.",
    )
    train: _Values = Field(["train"], description="Values that mean training.")
    validation: _Values = Field(["validation", "val", "valid"], description="Values that mean validation.")
    test: _Values = Field(["test"], description="Values that mean testing; others are left out.")
    buffer: int = _BUFFER
    seed: int = Field(0, description="Seed of drawing tiles by class, where `tiles` asks for that.")

    @property
    def wanted(self) -> Sequence[float]:
        """Return the shares of train, validation and test: there are none to meet, but training needs some."""
        return (1.0, 0.0, 0.0)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        values = [str(value) for value in (*self.train, *self.validation, *self.test)]
        if repeated := sorted({value for value in values if values.count(value) > 1}):
            raise ValueError(f"{', '.join(repeated)} stands in two lists of train, validation and test")
        if not self.train:
            raise ValueError("train must list a value")
        if self.key is not None and self.file is None:
            raise ValueError("key names a column of a file: give file too")
        return self


class ListSplit(Settings):
    """Takes splits of images in folders that somebody has published as lists of names, or as folders."""

    by: Literal["list"] = Field(description="Lists of images.")
    train: list[Text] = Field(
        min_length=1,
        description="Text files (.txt) below the download folder that name an image a line, suffix or not; or patterns "
        "of images' paths below `folders.path`, where * also matches /, e.g. Train/*.",
    )
    validation: list[Text] = Field(default_factory=list, description="The same for validation.")
    test: list[Text] = Field(default_factory=list, description="The same for testing; other images are left out.")
    seed: int = Field(0, description="Seed of drawing tiles by class, where `tiles` asks for that.")

    @property
    def wanted(self) -> Sequence[float]:
        """Return 1 for each of train, validation and test that must not be empty, else 0."""
        return tuple(float(bool(entries)) for entries in (self.train, self.validation, self.test))


AnySplit = Annotated[
    BlockSplit | PolygonSplit | SceneSplit | ColumnSplit | ListSplit | RandomSplit, Field(discriminator="by")
]
