"""What is done with models and maps: scenes mapped and laid together, models exported, maps sampled and assessed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from landbalance.commands import named
from landbalance.errors import UserError
from landbalance.layout import Layout

if TYPE_CHECKING:
    from landbalance.config.scenes import Mask


def map(options: argparse.Namespace) -> None:
    """Run the map stage on a scene of an experiment, or on any scenes with a bundle."""
    from landbalance.config import load_config
    from landbalance.failures import noted
    from landbalance.map import run

    if options.workers is not None and options.workers < 1:
        raise UserError(f"--workers: found {options.workers}; allowed: 1 or more.")
    if options.model is not None:
        _map_with_bundle(options)
        return
    if len(options.names) != 2:
        raise UserError(
            f"landbalance map: found {' '.join(options.names)}; wanted: EXPERIMENT SCENE, or --model BUNDLE SCENE …"
        )
    if options.set:
        raise UserError(
            f"--set {options.set[0]}: only with --model; an experiment's settings stand in its configuration."
        )
    if options.mask is not None:
        raise UserError(
            f"--mask {options.mask}: only with --model; an experiment's scenes have their `mask` in its configuration."
        )
    if options.out is not None:
        raise UserError(f"--out {options.out}: only with --model; an experiment's maps lie below --results.")
    name, scene = options.names
    config, layout = load_config(options.config), Layout(options.results)
    experiment = named(options, "experiments", name)
    dataset = config.datasets[experiment.dataset]
    if scene not in dataset.scenes:
        names = ", ".join(dataset.scenes) or "none"
        raise UserError(f"{options.config}: dataset {experiment.dataset} has no scene {scene}; allowed: {names}.")
    source, bundle = layout.download(experiment.dataset), layout.train(name)
    target = layout.map(name, scene)
    with noted(target):
        run(scene, dataset, config.map, source, bundle, target, options.workers)


def _map_with_bundle(options: argparse.Namespace) -> None:
    from landbalance.config import Map
    from landbalance.config.checks import checked
    from landbalance.map import run_bundle
    from landbalance.workflow import overridden

    settings = checked(Map, overridden({}, options.set, "--set"), "--set")
    mask = None if options.mask is None else _mask(options.mask)
    for path in run_bundle(options.model, options.names, settings, options.out or Path(), options.workers, mask):
        sys.stdout.write(f"{path}\n")


def _mask(text: str) -> Mask:
    """Return the mask that an option names: by its band alone, or as a scene's `mask` stands in a configuration."""
    from landbalance.config.checks import checked
    from landbalance.config.scenes import Mask
    from landbalance.workflow import overridden

    wanted = overridden({}, [f"mask={text}"], "--mask")["mask"] if text.lstrip().startswith("{") else {"band": text}
    return checked(Mask, wanted, "--mask")


def mosaic(options: argparse.Namespace) -> None:
    """Lay an experiment's maps together."""
    from landbalance.config import load_config
    from landbalance.map import mosaic

    experiment, layout = named(options, "experiments", options.experiment), Layout(options.results)
    config = load_config(options.config)
    dataset = config.datasets[experiment.dataset]
    if not dataset.scenes:
        raise UserError(f"{options.config}: dataset {experiment.dataset} has no scenes, so there is no map of it.")
    maps = [layout.map(options.experiment, scene) for scene in dataset.scenes]
    mosaic(maps, dataset.classes, config.map.nodata, layout.mosaic(options.experiment))


def export(options: argparse.Namespace) -> None:
    """Write a bundle's model as ONNX."""
    from landbalance.export import export_onnx

    target = options.out or options.bundle / "model.onnx"
    sys.stdout.write(export_onnx(options.bundle, target, options.tiles) + "\n")


def design(options: argparse.Namespace) -> None:
    """Draw the points of a sample."""
    from landbalance.files import read_json
    from landbalance.sample import Wanted, design

    layout, maps = Layout(options.results), _maps(options)
    if options.experiment is None and options.out is None:
        raise UserError("--out: say where the points of --map are to go, e.g. --out points.gpkg.")
    accuracies = {}
    if options.experiment is not None and options.expected is None:
        classes = read_json(layout.evaluate(options.experiment) / "metrics.json")["per_class"]
        accuracies = {item["name"]: item["users_accuracy"] for item in classes if item["users_accuracy"] is not None}
    wanted = Wanted(options.standard_error, options.points, options.fewest, options.expected, options.seed)
    design(maps, accuracies, wanted, options.out or layout.design(options.experiment))


def assess(options: argparse.Namespace) -> None:
    """Estimate accuracy and areas from labelled points."""
    from landbalance.sample import assess

    layout, maps = Layout(options.results), _maps(options)
    if options.experiment is None and (options.points is None or options.out is None):
        raise UserError("--points, --out: with --map, say which points are labelled and where the result is to go.")
    points, out = options.points or layout.design(options.experiment), options.out or layout.assess(options.experiment)
    sys.stdout.write(assess(maps, points, options.level, out) + "\n")


def _maps(options: argparse.Namespace) -> list[Path]:
    """Return the maps that a sample is about: those given, or all of an experiment."""
    from landbalance.config import load_config

    if (options.experiment is None) == (options.map is None):
        raise UserError("Give the name of an experiment or --map with class maps, one of the two.")
    if options.map is not None:
        return list(options.map)
    experiment, layout = named(options, "experiments", options.experiment), Layout(options.results)
    scenes = load_config(options.config).datasets[experiment.dataset].scenes
    if not scenes:
        raise UserError(f"{options.config}: dataset {experiment.dataset} has no scenes, so there is no map of it.")
    mosaic = layout.mosaic(options.experiment)
    if len(scenes) > 1 and mosaic.is_file():
        return [mosaic]
    return [layout.map(options.experiment, scene) for scene in scenes]
