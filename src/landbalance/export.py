"""A bundle's model as ONNX, so that other software can use it: raw band values in, probabilities out."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from landbalance.bundle import CARD, Bundle, load_bundle
from landbalance.errors import UserError
from landbalance.files import placed
from landbalance.prediction import Predictor
from landbalance.tiles import Normalisation, open_tiles

_log = logging.getLogger(__name__)

TOLERANCE = 1e-3
"""Largest difference of a probability between the two models; rounding makes some 1e-6."""
_OPSET = 18
_TILES = 8


class _FromRawValues(nn.Module):
    """A network with what surrounds it: normalisation before, softmax after."""

    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(self, network: nn.Module, normalisation: Normalisation) -> None:
        super().__init__()
        self.network = network
        self.missing = normalisation.missing
        shape = (1, -1, 1, 1)
        self.register_buffer("mean", torch.tensor(normalisation.mean).reshape(shape))
        self.register_buffer("scale", (1 / torch.tensor(normalisation.std, dtype=torch.float64)).float().reshape(shape))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        inputs = (images - self.mean) * self.scale
        if self.missing is not None:
            gone = (images == self.missing).all(dim=1, keepdim=True)
            inputs = torch.where(gone, torch.zeros_like(inputs), inputs)
        probabilities: torch.Tensor = self.network(inputs).softmax(1)
        return probabilities


def export_onnx(bundle: Path, target: Path, store: Path | None) -> str:
    """Write the model of a bundle as ONNX, compare it with the original, and return what the comparison found.

    Input `images`: float32 (n, bands, height, width), raw values of the bands in the bundle's order. Output
    `probabilities`: float32 (n, classes, height, width) for segmentation, (n, classes) for classification. The bundle's
    card stands in the file's metadata. A U-Net takes heights and widths that are multiples of 2^depth.

    Parameters
    ----------
    bundle : Path
        Folder of the model bundle.
    target : Path
        The ONNX file; it appears only when both models say the same.
    store : Path or None
        Tile store to compare on: some tiles of its test split. Without one, noise as the model was normalised for.

    Raises
    ------
    UserError
        When the bundle or the store is missing or damaged, a package is not installed, or the models differ.
    """
    _check_packages()
    network, card = load_bundle(bundle)
    images = _images(card, bundle, store)
    wanted = Predictor(network, card, torch.device("cpu"), 1 << 18).probabilities(images)
    with placed(target) as temporary:
        _write(network, card, bundle, images, temporary)
        found = _answers(temporary, images)
        difference = float(np.abs(found - wanted).max())
        if not difference <= TOLERANCE:
            raise UserError(
                f"{bundle}: the ONNX model's probabilities differ by up to {difference:.2g} from those of torch "
                f"(allowed: {TOLERANCE:g}), so it was not written. A bundle of precision bfloat16 differs by its "
                "rounding: train in float32 to export."
            )
    same = float((found.argmax(1) == wanted.argmax(1)).mean())
    what = f"{len(images)} tiles of {store}" if store is not None else f"{len(images)} tiles of noise"
    return (
        f"{target}: opset {_OPSET}; on {what} its probabilities differ by {difference:.1e} at most from those of "
        f"torch; same class: {same:.4%}"
    )


def _check_packages() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"{error.name}: not installed; the export needs it. Install the extra `onnx`, in the clone: "
            "pip install -c constraints.txt -e '.[onnx]'."
        ) from error


def _images(card: Bundle, bundle: Path, store: Path | None) -> NDArray[np.float32]:
    if store is None:
        size, random = card.tile_size, np.random.default_rng(0)
        noise = random.standard_normal((_TILES, len(card.bands), size, size))
        shape = (-1, 1, 1)
        scale, mean = np.array(card.normalisation.std).reshape(shape), np.array(card.normalisation.mean).reshape(shape)
        return np.asarray(noise * scale + mean, np.float32)
    tiles = open_tiles(store)
    if tiles.info.bands != card.bands:
        raise UserError(
            f"{store}: its bands ({', '.join(tiles.info.bands)}) are not those of the model in {bundle} "
            f"({', '.join(card.bands)}). Name the tile store that it was trained on."
        )
    images, _ = tiles.read(tiles.ids("test")[:_TILES])
    if not len(images):
        raise UserError(f"{store}: its test split has no tiles to compare on. Name another, or leave --tiles out.")
    return images.astype(np.float32)


def _write(network: nn.Module, card: Bundle, bundle: Path, images: NDArray[np.float32], target: Path) -> None:
    import onnx

    model = _FromRawValues(network, card.normalisation).eval()
    dynamic: dict[int, Any] = {0: torch.export.Dim("n", min=1)}
    multiple = 1
    if card.task == "segmentation":
        multiple = 2**card.model.depth
        dynamic[2], dynamic[3] = torch.export.Dim.DYNAMIC, torch.export.Dim.DYNAMIC
    # Two of them: an axis of length 1 would be taken for a constant.
    example = torch.from_numpy(np.resize(images, (2, *images.shape[1:])))
    program = torch.onnx.export(
        model,
        (example,),
        input_names=["images"],
        output_names=["probabilities"],
        opset_version=_OPSET,
        dynamo=True,
        dynamic_shapes={"images": dynamic},
        verbose=False,
    )
    assert program is not None
    proto = program.model_proto
    onnx.helper.set_model_props(
        proto, {"landbalance": (bundle / CARD).read_text(encoding="utf-8"), "multiple": str(multiple)}
    )
    onnx.checker.check_model(proto)
    target.write_bytes(proto.SerializeToString())


def _answers(path: Path, images: NDArray[np.float32]) -> NDArray[np.float32]:
    from onnxruntime import InferenceSession

    session = InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    found: NDArray[np.float32] = session.run(["probabilities"], {"images": images})[0]
    return found
