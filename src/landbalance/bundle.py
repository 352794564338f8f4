"""The model bundle: weights (safetensors) and a JSON card that says all one needs to use them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from landbalance.config.base import Settings
from landbalance.config.checks import checked
from landbalance.config.data import ClassInfo
from landbalance.config.learning import Model
from landbalance.config.scenes import Stretch
from landbalance.errors import UserError
from landbalance.files import placed, read_json, write_json
from landbalance.tiles import Normalisation

if TYPE_CHECKING:
    from torch import nn

WEIGHTS = "model.safetensors"
CARD = "model.json"


class Bundle(Settings):
    """What ``model.json`` says; enough to use the weights without the configuration."""

    format: Literal[1] = Field(1, description="Version of this card.")
    task: Literal["segmentation", "classification"]
    model: Model
    bands: list[str] = Field(description="Names of the input bands, in order.")
    classes: list[ClassInfo] = Field(description="Classes, in the order of the outputs.")
    tile_size: int = Field(description="Width and height of the tiles that it was trained on, in pixels.")
    resolution: float | None = Field(description="Pixel size that it was trained on, in units of the CRS.")
    normalisation: Normalisation
    reflectance: bool = Field(
        False, description="Whether it was trained on products, by whose metadata bands hold reflectance × 10,000."
    )
    stretch: Stretch | None = Field(
        None, description="How the images that it was trained on were made of a scene's values, see `folders.stretch`."
    )
    provenance: dict[str, Any] = Field(description="Experiment, settings, versions, workers, sources.")


def save_bundle(folder: Path, network: "nn.Module", bundle: Bundle) -> None:
    """Write the weights of `network` and the card into `folder`; the card comes last.

    The weights are those of the bare network on the CPU, however many devices it was trained on.
    """
    from safetensors.torch import save
    from torch.nn.parallel import DistributedDataParallel

    folder.mkdir(parents=True, exist_ok=True)
    bare = network.module if isinstance(network, DistributedDataParallel) else network
    state = {key: value.detach().cpu().contiguous() for key, value in bare.state_dict().items()}
    with placed(folder / WEIGHTS) as temporary:
        temporary.write_bytes(save(state))
    write_json(folder / CARD, bundle.model_dump(mode="json"))


def read_card(folder: Path) -> Bundle:
    """Return the card of the bundle in `folder`, without importing torch.

    Raises
    ------
    UserError
        When there is none or it does not fit this version.
    """
    return checked(Bundle, read_json(folder / CARD), str(folder / CARD))


def load_bundle(folder: Path) -> tuple["nn.Module", Bundle]:
    """Return the network in `folder`, in evaluation mode on the CPU, and its card.

    Raises
    ------
    UserError
        When a file is missing or damaged, or the weights are not those of the card's model.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from landbalance.models import build_model

    bundle = read_card(folder)
    network = build_model(bundle.model, len(bundle.bands), len(bundle.classes))
    try:
        network.load_state_dict(load_file(folder / WEIGHTS))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise UserError(
            f"{folder / WEIGHTS}: damaged, missing or of another model ({str(error).splitlines()[0]}). Train again."
        ) from error
    return network.eval(), bundle
