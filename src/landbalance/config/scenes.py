"""Settings of scenes and labels: where bands, masks and classes stand."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from landbalance.config.base import Name, Positive, Settings, Text

_MASKS: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "SCL": ((0, 1, 3, 8, 9, 10), ()),
    "QA_PIXEL": ((), (0, 1, 2, 3, 4)),
}
"""Values and bits that mean clouds, their shadows, saturation or no data, by a product's raster of codes."""

_MASK_CLASSES: dict[str, dict[str, tuple[int, ...]]] = {
    "SCL": {
        "no_data": (0,), "saturated": (1,), "dark": (2,), "cloud_shadow": (3,), "vegetation": (4,), "bare": (5,),
        "water": (6,), "unclassified": (7,), "cloud": (8, 9), "cirrus": (10,), "snow": (11,),
    },
    "QA_PIXEL": {
        "fill": (0,), "dilated_cloud": (1,), "cirrus": (2,), "cloud": (3,), "cloud_shadow": (4,), "snow": (5,),
        "water": (7,),
    },
}  # fmt: skip
"""What the codes (SCL: values, QA_PIXEL: bits) of a product's raster are called."""


class Mask(Settings):
    """Which pixels of a scene are missing: clouds, shadows, and what else a raster of codes tells."""

    band: Text = Field(
        description="SCL (Sentinel-2 level 2A) or QA_PIXEL (Landsat) of the scene's product; or a raster below the "
        "download folder, as a scene names its bands: clouds.tif, masks.tif:2."
    )
    classes: list[Text] = Field(
        default_factory=list,
        description="Classes of SCL or QA_PIXEL that are missing, by name instead of by code: cloud, cloud_shadow, "
        "cirrus, snow, …; the usual ones when neither `classes` nor `values` nor `bits` is given.",
    )
    values: list[int] = Field(
        default_factory=list, description="Codes of missing pixels. For SCL, 0, 1, 3, 8, 9 and 10 when not given."
    )
    bits: list[Annotated[int, Field(ge=0, le=31)]] = Field(
        default_factory=list,
        description="Bits (0 is the lowest) any of which means missing. For QA_PIXEL, 0 to 4 when not given: fill, "
        "dilated cloud, cirrus, cloud, shadow.",
    )

    @property
    def codes(self) -> tuple[list[int], int]:
        """Return the values of missing pixels, and the bits as one number."""
        if not (self.classes or self.values or self.bits):
            values, bits = map(list, _MASKS.get(self.band, ((), ())))
        else:
            named = [code for name in self.classes for code in _MASK_CLASSES[self.band][name]]
            of_values = self.band == "SCL"
            values = self.values + (named if of_values else [])
            bits = self.bits + ([] if of_values else named)
        return values, sum(1 << bit for bit in set(bits))

    @model_validator(mode="after")
    def _some(self) -> Self:
        known = _MASK_CLASSES.get(self.band, {})
        if self.classes and not known:
            raise ValueError(f"classes have names in SCL and QA_PIXEL only: give values or bits of {self.band}")
        if wrong := [name for name in self.classes if name not in known]:
            raise ValueError(f"no class of {self.band} is called {', '.join(wrong)}; allowed: {', '.join(known)}")
        if not (self.values or self.bits or self.band in _MASKS):
            raise ValueError(f"say which values or bits of {self.band} mean missing pixels")
        return self

    def at(self, band: str) -> "Mask":
        """Return the same mask in another raster, whose codes mean what this one's do."""
        values, bits = self.codes
        return Mask(band=band, values=values, bits=[bit for bit in range(32) if bits >> bit & 1])


def _by_name(bands: Any) -> Any:
    """Return a list of bands as a mapping of each to itself."""
    if isinstance(bands, list) and all(isinstance(band, str) for band in bands):
        _refuse_repeated_bands(bands)
        return {band: band for band in bands}
    return bands


def _refuse_repeated_bands(bands: list[str]) -> None:
    if repeated := sorted({band for band in bands if bands.count(band) > 1}):
        raise ValueError(f"{', '.join(repeated)} stands there twice")


Bands = Annotated[dict[Name, Text], BeforeValidator(_by_name, json_schema_input_type=dict[Name, Text] | list[Name])]


class Scene(Settings):
    """One image: its bands in files of their own, in a stack, or in a product as an agency delivers it."""

    product: Text | None = Field(
        None,
        description="A product below the download folder, whole: a Sentinel-2 folder (.SAFE, level 1C or 2A) or its "
        ".zip, a Landsat Collection 2 folder or its .tar. Its own metadata say what its numbers mean: the bands hold "
        "reflectance × 10,000.",
    )
    stack: Text | None = Field(None, description="One file below the download folder that holds all bands.")
    bands: Annotated[
        dict[Name, Text], BeforeValidator(_by_name, json_schema_input_type=dict[Name, Text] | list[Name])
    ] = Field(
        min_length=1,
        description="Band name → where it stands: a file below the download folder (`stack.tif:3` is the third band "
        "of a file with several); with `stack`, the band's description or number in the file; with `product`, the "
        "agency's name of the band. A list of names where both are the same: [B02, B03, B04]. The order is the "
        "order of the model's input.",
    )
    mask: Mask | None = Field(None, description="Which pixels count as missing, when mapping as when training.")
    nodata: float | None = Field(
        None, description="Value that marks missing pixels, where the files do not say so themselves."
    )
    scale: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="With `offset`, what the files' numbers mean: scale × number + offset, as whole numbers from 1 to "
        "65535. For files taken out of a product: reflectance × 10,000 is what a product's bands hold.",
    )
    offset: float | None = Field(
        None, description="See `scale` (1 when not given); e.g. -1000 for Sentinel-2 since processing baseline 04.00."
    )
    crs: Text | None = Field(None, description="CRS of files that do not say their own, e.g. EPSG:32633.")
    acquired: Text | None = Field(
        None, description="When the scene was taken, as shown in the report; a product says so itself."
    )
    labels: Text | None = Field(
        None, description="The scene's own file of labels, below the download folder, instead of `labels.path`."
    )

    @property
    def converted(self) -> bool:
        """Return whether the files' numbers become other values by the configuration."""
        return self.scale is not None or self.offset is not None

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.product is not None and self.stack is not None:
            raise ValueError("give product or stack, not both")
        if self.product is not None and self.nodata is not None:
            raise ValueError("a product says itself which pixels are missing: leave nodata out")
        if self.product is not None and self.converted:
            raise ValueError("a product says itself what its numbers mean: leave scale and offset out")
        return self


_LABEL_FILE = "below the download folder; not needed where each scene has its own `labels`."
_LABEL_CRS = "CRS of a file that does not say its own, e.g. EPSG:32633."


class VectorLabels(Settings):
    """Labels in a vector file: polygons or points with a class in one of their fields."""

    path: Text | None = Field(None, description=f"A vector file (GeoPackage, GeoJSON, …) {_LABEL_FILE}")
    layer: Text | None = Field(None, description="The layer, where the file has more than one.")
    field: Text = Field(description="The field that holds the source class.")
    radius: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="Distance, in units of the scene's CRS, around a point or line whose pixels get its class. Without "
        "it, points and lines are left out.",
    )
    crs: Text | None = Field(None, description=_LABEL_CRS)


class RasterLabels(Settings):
    """Labels in a raster whose values are the source classes; chosen by having no `field`."""

    path: Text | None = Field(None, description=f"A raster {_LABEL_FILE}")
    band: Positive = Field(1, description="The band that holds the source classes.")
    ignored: list[int] = Field(
        default_factory=list, description="Values that stand for no class. Any other value that no class lists stops."
    )
    crs: Text | None = Field(None, description=_LABEL_CRS)

    @field_validator("path")
    @classmethod
    def _is_raster(cls, path: str | None) -> str | None:
        if path is not None and path.lower().endswith(_VECTOR_SUFFIXES):
            raise ValueError(f"{path} is a vector file: name the field that holds the source class as labels.field")
        return path


_VECTOR_SUFFIXES = (".gpkg", ".geojson", ".json", ".shp", ".fgb", ".kml", ".gml", ".gpx")


def _kind_of_labels(value: Any) -> str:
    with_field = isinstance(value, VectorLabels) or (isinstance(value, Mapping) and "field" in value)
    return "vector labels" if with_field else "raster labels"


Labels = Annotated[
    Annotated[VectorLabels, Tag("vector labels")] | Annotated[RasterLabels, Tag("raster labels")],
    Discriminator(_kind_of_labels),
]


Stretch = Annotated[list[float], Field(min_length=4, max_length=4)]
"""Values of a scene from the first to the second become bytes from the third to the fourth."""


class Folders(Settings):
    """Images of one size sorted into a folder per class, as EuroSAT has it; or images that have a mask each."""

    path: Text = Field(
        description="The folder, below the download folder, that holds a folder per class (with `masks`: the images' "
        "folders, at any depth); a local source's own name comes first."
    )
    bands: list[Name] = Field(min_length=1, description="Names of the images' bands, in file order.")
    images: Text | None = Field(
        None, description="With `masks`: what a folder of images is called, e.g. images_png in LoveDA."
    )
    masks: Text | None = Field(
        None,
        description="What the folder beside each folder of images is called that holds their masks, e.g. masks_png: "
        "rasters of source classes, each named as its image. The images are cut into tiles.",
    )
    ignored: list[int] = Field(
        default_factory=list,
        description="Values of masks that stand for no class. Any other value that no class lists stops.",
    )
    stretch: Stretch | None = Field(
        None,
        description="How the images were made, where they are bytes made of reflectance × 10,000: [from, to, becomes, "
        "becomes], as `gdal_translate -scale` has it, what lies beyond being cut off. Scenes are mapped in the same "
        "bytes; without it, in the numbers that they hold.",
    )

    @model_validator(mode="after")
    def _to_bytes(self) -> Self:
        if self.stretch is not None:
            first, last, low, high = self.stretch
            if not (first < last and 0 <= low < high <= 255):
                raise ValueError(f"stretch must rise, to bytes from 0 to 255, e.g. [0, 2750, 1, 255] (found "
                                 f"{self.stretch})")  # fmt: skip
        return self

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if (self.images is None) != (self.masks is None):
            raise ValueError("images and masks are names of folders that belong together: give both or none")
        if self.ignored and self.masks is None:
            raise ValueError("ignored is about values of masks: name their folder")
        return self


def band_file(reference: str) -> tuple[str, int]:
    """Return the file and the 1-based band number that a scene's band names.

    >>> band_file("B02.jp2"), band_file("stack.tif:3")
    (('B02.jp2', 1), ('stack.tif', 3))
    """
    match = re.fullmatch(r"(.+):(\d+)", reference)
    return (match[1], int(match[2])) if match else (reference, 1)
