"""Settings of learning and of what comes out: models, training, experiments, outputs."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from landbalance.config.base import Name, Positive, Settings, Text

Arm = Literal["equal", "unweighted", "balanced"]
NonNegative = Annotated[float, Field(ge=0)]
Orientations = Literal[1, 8]
_ORIENTATIONS = (
    "Predict each image as it is (1), or in all eight orientations that right angles and mirrors give (8), with the "
    "mean of their probabilities: eight times the time."
)


class Model(Settings):
    """A network; its input bands and output classes come from the dataset."""

    architecture: Text = Field(
        description="`unet` for segmentation; for classification `resnet9`, small and fast on tiles of about 64 × 64 "
        "pixels, or the name of a torchvision model, e.g. resnet18."
    )
    encoder: Text = Field("resnet18", description="Encoder of the U-Net: a name known to segmentation-models-pytorch.")
    depth: Annotated[int, Field(ge=3, le=5)] = Field(4, description="Levels of the U-Net's encoder.")
    width: Positive = Field(
        32, description="Channels of the U-Net's last decoder level but one, or of the first layer of `resnet9`."
    )
    spectral: Annotated[int, Field(ge=0)] = Field(
        64,
        description="Channels of a branch beside the U-Net that sees one pixel and the mean of the 7 × 7 around it, "
        "for what many bands tell; none when 0.",
    )
    norm: Literal["batch", "group"] = Field(
        "batch",
        description="`batch`: batch norm over the global batch, whatever the split. `group`: group norm, which "
        "needs no communication.",
    )
    precision: Literal["float32", "bfloat16", "float64"] = Field(
        "float32",
        description="`bfloat16`: forward and backward in bfloat16 where safe (autocast); weights, gradients and "
        "their reduction stay float32. `float64`: everything in float64, to see how little the split matters.",
    )
    weights: Text | None = Field(
        None,
        description="A safetensors file to start training from instead of random weights, e.g. the "
        "`model.safetensors` of a bundle; relative to the working folder. Its tensors must be those of this network, "
        "except that a layer of another number of classes starts afresh.",
    )


class Optimiser(Settings):
    """How weights follow gradients."""

    name: Literal["sgd", "adamw"] = Field("adamw", description="The optimiser.")
    learning_rate: Annotated[float, Field(gt=0)] = Field(1e-3, description="Highest learning rate.")
    momentum: NonNegative = Field(0.9, description="Momentum of sgd.")
    weight_decay: NonNegative = Field(1e-4, description="Weight decay.")


class Training(Settings):
    """How a model is trained; none of it depends on the machines."""

    epochs: Positive = Field(description="How often each sample is seen.")
    batch_size: Positive = Field(description="Samples of the global batch, over all workers.")
    optimiser: Optimiser = Field(default_factory=Optimiser, description="The optimiser.")
    schedule: Literal["constant", "cosine"] = Field(
        "cosine", description="How the learning rate falls from its highest value: not at all, or to 0 as a cosine."
    )
    warmup_epochs: NonNegative = Field(0.0, description="Epochs in which the learning rate rises from 0.")
    augmentation: Literal["none", "dihedral"] = Field(
        "dihedral", description="`dihedral`: each sample flipped and turned by right angles at random."
    )
    shift: Annotated[int, Field(ge=0)] = Field(
        0,
        description="Most pixels by which each sample is moved at random, up or down and left or right; the image "
        "mirrored at its edge fills the gap.",
    )
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="Part of each label that is spread evenly over all classes; not in the validation loss."
    )
    class_weights: Literal["none", "balanced"] = Field(
        "none", description="`balanced`: weigh classes by the inverse of their frequency in the train split."
    )
    clip_norm: Annotated[float, Field(gt=0)] | None = Field(
        None, description="Largest norm of the global gradient; no clipping when not given."
    )
    ema: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None,
        description="Decay of an exponential moving average of the weights, which is then validated and saved.",
    )
    reduction: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="What gradients are sent as between workers. `bfloat16` halves the traffic, for slow networks, and "
        "rounds to 8 bits: results then depend on the split by about that much.",
    )
    deterministic: bool = Field(
        False,
        description="Take only computations that repeat to the bit: the same plan on the same hardware then gives the "
        "same model file. CPUs do so anyway; GPUs lose some speed.",
    )
    rebalance: bool = Field(
        True,
        description="Move shares while training when a machine has become slower or faster than planned (arm "
        "`balanced`). What is computed stays the same but for rounding, so `deterministic` turns it off.",
    )
    seed: int = Field(0, description="Seed of the initial weights, the permutations and the augmentation.")
    checkpoint_seconds: NonNegative = Field(
        60.0, description="Seconds between checkpoints; one is also written at the end of each epoch."
    )
    timeout_seconds: Annotated[float, Field(ge=1)] = Field(
        300.0, description="Seconds after which a worker that does not answer ends the job."
    )


class Experiment(Settings):
    """A dataset, a model, a way to train, and an arm."""

    dataset: Name = Field(description="A name under `datasets`.")
    model: Name = Field(description="A name under `models`.")
    training: Name = Field(description="A name under `training`.")
    arm: Arm = Field(
        "balanced",
        description="`equal`: equal shares, plain mean. `unweighted`: shares by speed, plain mean (biased). "
        "`balanced`: shares by speed, exact weighting.",
    )
    nodes: list[Name] = Field(
        default_factory=list,
        description="Kinds of nodes in the cluster description that it may use; all of them when empty.",
    )


class Profile(Settings):
    """How worker speed is measured."""

    repeats: Annotated[int, Field(ge=3)] = Field(
        7, description="Timed steps at a time; there are more until the time is known well enough."
    )
    warmup: Annotated[int, Field(ge=1)] = Field(2, description="Steps before the clock starts.")
    tolerance: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.025,
        description="A time is known well enough when half its 95 % confidence interval is below this part of it, and "
        "a batch size is measured between two others when a straight line would be off by more.",
    )
    seconds: Annotated[float, Field(gt=0)] = Field(
        45.0, description="Time for one node, from the start; then measuring ends, known well enough or not."
    )
    memory_reserve: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.2, description="Part of the free memory that no worker may count on for its samples."
    )


class Evaluate(Settings):
    """How the test split is judged."""

    baseline: bool = Field(True, description="Also fit a random forest on the same split's pixels.")
    baseline_pixels: Positive = Field(
        50_000, description="Train pixels, drawn at random, that the forest sees at most."
    )
    random_split: bool = Field(
        False,
        description="Also fit and judge a forest on samples of all tiles split at random, to show by how much such a "
        "split flatters.",
    )
    resamples: Annotated[int, Field(ge=100)] = Field(
        2_000, description="Resamples of whole blocks (images in folders: of images) from which intervals are taken."
    )
    level: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.95, description="Confidence level of the intervals: the share of the resamples that lies inside."
    )
    orientations: Orientations = Field(1, description=_ORIENTATIONS)

    @model_validator(mode="after")
    def _two_forests(self) -> Self:
        if self.random_split and not self.baseline:
            raise ValueError("random_split is compared with the baseline: set baseline to true, or drop random_split")
        return self


class Map(Settings):
    """How a scene becomes a map, and which files lie beside it."""

    window: Positive = Field(256, description="Width and height of a predicted window in pixels.")
    overlap: Annotated[int, Field(ge=0)] = Field(
        64,
        description="Pixels at each edge of a window that its neighbour predicts too; two windows share twice as many.",
    )
    join: Literal["blend", "crop"] = Field(
        "blend",
        description="What becomes of pixels that several windows predict. `blend`: a mean of the probabilities, "
        "weighted towards the windows' centres; the outer half of the overlap does not count. `crop`: each pixel "
        "comes from one window, that in which it lies farther from the edge.",
    )
    stride: Positive | None = Field(
        None,
        description="Pixels from one voting tile to the next, for a `classification` model, which gives a class per "
        "tile; a quarter of the tile when not given.",
    )
    orientations: Orientations = Field(1, description=_ORIENTATIONS)
    nodata: Annotated[int, Field(ge=0, le=255)] = Field(255, description="Code of pixels without data.")
    probability: bool = Field(
        False, description="Also write the probability of each class: `<scene>.probability.tif`, a band per class."
    )
    uncertainty: list[Literal["confidence", "entropy", "margin"]] = Field(
        default_factory=list,
        description="Also write, as `<scene>.<name>.tif`: `confidence`, the probability of the class shown; `entropy` "
        "of the probabilities, 1 where all classes are equally likely; `margin` between the two likeliest classes.",
    )
    majority: Annotated[int, Field(ge=3)] | None = Field(
        None,
        description="Width in pixels (odd) of the neighbourhood whose most frequent class each pixel takes in a second "
        "map, `<scene>.filtered.tif`.",
    )
    minimum_unit: Annotated[int, Field(ge=2)] | None = Field(
        None,
        description="Minimum mapping unit in pixels: in `<scene>.filtered.tif` a smaller patch takes the class of its "
        "largest neighbour. At 10 m, 50 pixels are half a hectare.",
    )
    polygons: bool = Field(
        False,
        description="Also write the patches of the map (the filtered one, if there is one) as polygons with class and "
        "area: `<scene>.polygons.gpkg`.",
    )
    stac: bool = Field(False, description="Also describe the files and the model in a STAC item: `<scene>.stac.json`.")
    mosaic: bool = Field(
        False, description="Also lay the maps of all scenes together, the first named on top: `mosaic.tif`."
    )

    @property
    def filtered(self) -> bool:
        """Return whether a filtered map is wanted."""
        return self.majority is not None or self.minimum_unit is not None

    @property
    def endings(self) -> list[str]:
        """Return how the names of a scene's files end, after the scene's name and a dot; the map's own comes first."""
        wanted = {
            "tif": True,
            "qml": True,
            "probability.tif": self.probability,
            **{f"{name}.tif": name in self.uncertainty for name in ("confidence", "entropy", "margin")},
            "filtered.tif": self.filtered,
            "filtered.qml": self.filtered,
            "polygons.gpkg": self.polygons,
            "polygons.qml": self.polygons,
            "stac.json": self.stac,
        }
        return [ending for ending, asked in wanted.items() if asked]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.window <= 2 * self.overlap:
            raise ValueError(f"window ({self.window}) must be above twice the overlap ({self.overlap})")
        if self.majority is not None and self.majority % 2 == 0:
            raise ValueError(f"majority ({self.majority}) must be odd, so that a pixel is its neighbourhood's centre")
        return self


class Report(Settings):
    """What the report shows."""

    title: Text = Field("Land cover", description="Headline of the reports.")
    picture_pixels: Positive = Field(1600, description="Longest side, in pixels, of the scene and the map shown.")
