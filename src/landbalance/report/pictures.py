"""Images of scenes and maps, as files and as addresses that hold them."""

import base64
import io

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray
from PIL import Image

from landbalance.config import ClassInfo
from landbalance.report.scenes import FULL, NO_CLASS, Layer, SceneView
from landbalance.report.units import distance

_SMALL = 600
"""Pictures below this many pixels are enlarged by the browser, which would show what compression lost."""


def map_figure(view: SceneView, classes: list[ClassInfo]) -> Figure:
    """Return the scene and its map side by side with a legend and a scale bar, for print."""
    height, width = view.classes.shape
    across = width >= 1.6 * height
    figure = Figure(figsize=(9, 18 * height / width + 1.6) if across else (11, 5.5 * height / width + 1.2))
    figure.set_layout_engine("constrained")
    left, right = figure.subplots(2, 1) if across else figure.subplots(1, 2)
    left.imshow(view.picture, interpolation="nearest")
    left.set_title(f"Scene: {view.name} ({', '.join(view.bands)})")
    right.imshow(map_colours(view.classes, classes), interpolation="nearest")
    right.set_title("Land cover")
    metres, share = view.scale_bar
    across_bar, down_bar = [0.03 * width, (0.03 + share) * width], [0.95 * height] * 2
    left.plot(across_bar, down_bar, color="white", lw=5, solid_capstyle="butt")
    left.plot(across_bar, down_bar, color="black", lw=3, solid_capstyle="butt")
    label_box = {"color": "white", "alpha": 0.7, "pad": 2}
    left.text(0.03 * width, 0.92 * height, distance(metres), color="black", bbox=label_box)
    for axes in (left, right):
        axes.set_axis_off()
    patches = [Patch(facecolor=item.colour, edgecolor="#555", label=item.name) for item in classes]
    figure.legend(
        handles=patches, loc="outside lower center", ncols=min(len(patches), 4 if across else 6), frameon=False
    )
    return figure


def map_png(view: SceneView, classes: list[ClassInfo]) -> bytes:
    """Return `map_figure` as a PNG file of 150 dots per inch."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"font.family": "DejaVu Sans", "text.parse_math": False}):
        map_figure(view, classes).savefig(buffer, format="png", dpi=150, facecolor="white")
    return buffer.getvalue()


def map_colours(classes: NDArray[np.uint8], infos: list[ClassInfo]) -> NDArray[np.uint8]:
    """Return class indices (height, width) as RGBA (height, width, 4), transparent where there is no class."""
    return _palette(infos)[classes]


def _palette(infos: list[ClassInfo]) -> NDArray[np.uint8]:
    palette = np.zeros((256, 4), np.uint8)
    for number, info in enumerate(infos):
        palette[number] = (*(int(info.colour[at : at + 2], 16) for at in (1, 3, 5)), 255)
    return palette


def map_address(classes: NDArray[np.uint8], infos: list[ClassInfo], longest_side: int | None = None) -> str:
    """Return a map as the data address of a PNG file with a palette, at most `longest_side` pixels wide and high."""
    image = Image.fromarray(classes)
    if longest_side is not None:
        image.thumbnail((longest_side, longest_side), Image.Resampling.NEAREST)
    return _indexed(image, _palette(infos)[:, :3])


def layer_address(layer: Layer) -> str:
    """Return an uncertainty layer as the data address of a PNG file with a palette."""
    return _indexed(Image.fromarray(layer.values), _ramp())


def _indexed(values: Image.Image, palette: NDArray[np.uint8]) -> str:
    """Return 8-bit values as a PNG whose pixels are these values: the page's script reads them back."""
    image = Image.frombytes("P", values.size, values.tobytes())
    image.putpalette(palette.tobytes())
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True, bits=8, transparency=NO_CLASS)
    return data_address(buffer.getvalue(), "image/png")


def _ramp() -> NDArray[np.uint8]:
    """Return the colours of values from 0 to `FULL`, shape (256, 3); viridis, which colour-blind readers can read."""
    colours = matplotlib.colormaps["viridis"](np.minimum(np.arange(256) / FULL, 1.0), bytes=True)
    return np.asarray(colours[:, :3], np.uint8)


def ramp_css() -> str:
    """Return the colours of `_ramp` as stops of a CSS gradient."""
    return ", ".join(f"rgb({red} {green} {blue})" for red, green, blue in _ramp()[: FULL + 1 : 25])


def scene_address(picture: NDArray[np.uint8]) -> str:
    """Return a scene (RGBA) as the data address of a WebP file; a small one without loss."""
    buffer = io.BytesIO()
    small = max(picture.shape) < _SMALL
    Image.fromarray(picture).save(buffer, format="WEBP", lossless=small, quality=88, method=4)
    return data_address(buffer.getvalue(), "image/webp")


def data_address(content: bytes, kind: str) -> str:
    """Return `content` of MIME type `kind` as a ``data:`` address."""
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
