"""How far training on unequal shares is from one process on the whole batch.

Each case trains 10 steps with the project's training loop on several workers of this machine, and
again with a plain PyTorch loop in one process that knows nothing of shares. A figure is the largest
relative difference of a parameter tensor, ‖a - b‖ / ‖b‖.

- `unweighted`, `resnet18_unweighted`: workers, but with the plain mean of their mean gradients.
- `by_samples`: mean gradients weighed by numbers of samples, emulated in one process. All use the tiles
  and shares of `lopsided_ignored`.
- `rounding.…`: one process against itself with each batch's samples in reverse order, which only rounds
  differently: no exact method can be expected to come closer.
- `running_statistics`: the largest relative difference of a batch norm's running statistics over all exact cases.

    python benchmarks/exactness.py [--quick]

prints one JSON object; `--quick` leaves out the ResNet-18.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from comparison import RESNET, Case, Kind, Trained, one_process, run_on_workers, trained, write_tiles
from measuring import benchmark_result


def _group_norm(case: Case) -> Case:
    return replace(case, model=case.model.model_copy(update={"norm": "group"}))


KINDS: tuple[Kind, ...] = ("float64", "float32")
LOPSIDED = Case("lopsided_ignored", ((1, 9),), labels="lopsided")
UNET_CASES = (
    Case("shares_7_3", ((7, 3),)),
    # Batch norm over four samples amplifies float32 rounding beyond the bound, unless tiles are larger.
    Case("shares_1_3", ((1, 3),), size=64),
    Case("shares_1_1_14", ((1, 1, 14),)),
    Case("last_batch_5_0", ((15, 1),), samples=21),
    LOPSIDED,
    Case("ignored_tile", ((6, 2),), labels="ignored"),
    Case("class_weights", ((7, 3),), settings=(("class_weights", "balanced"),)),
    _group_norm(Case("accumulation_3_5", ((15, 5),), micro_batch=5)),
    _group_norm(Case("group_norm", ((7, 3),))),
    Case("clipping", ((7, 3),), settings=(("clip_norm", 0.5),)),
    Case("ema", ((7, 3),), settings=(("ema", 0.9),)),
    Case("resume_2_1_3", ((7, 3), (10,), (4, 4, 2))),
)
# Ten tiles of 64 pixels leave the ResNet-18's last layers 40 pixels, and its batch norms amplify float32 rounding, in
# one process too (`rounding.resnet18`). A small learning rate keeps ten steps of that below the bound, and keeps
# `resnet18_unweighted` an order of magnitude above it.
RESNET_CASES = tuple(
    replace(case, name=f"resnet18_{case.name}", model=RESNET.model_copy(update={"norm": case.model.norm}), size=64,
            learning_rate=2e-5)
    for case in UNET_CASES
)  # fmt: skip
UNWEIGHTED = tuple(
    replace(case, name=case.name.replace("lopsided_ignored", "unweighted"), arm="unweighted", tiles=case.name)
    for case in UNET_CASES + RESNET_CASES
    if case.labels == "lopsided"
)


def largest_difference(found: Trained, wanted: Trained, statistics: bool = False) -> float:
    """Return the largest relative difference over parameters, or over the running statistics of batch norms."""
    assert found.state.keys() == wanted.state.keys()
    names = [name for name, value in wanted.state.items() if value.is_floating_point()]
    chosen = [name for name in names if ("running_" in name) is statistics]
    differences = [_relative(found.state[name], wanted.state[name]) for name in chosen]
    return max(differences, default=0.0)


def _relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm().clamp_min(1e-12))


def figures(quick: bool) -> Mapping[str, float]:
    """Return the difference of each case, in float64 and float32."""
    exact = UNET_CASES if quick else UNET_CASES + RESNET_CASES
    known = {case.name: case for case in exact}
    unweighted = [case for case in UNWEIGHTED if case.tiles in known]
    controls = {"unet": UNET_CASES[0], "resnet18": RESNET_CASES[0]}
    result: dict[str, float] = {}
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        stores = {case.name: write_tiles(root / case.name / "tiles", case) for case in (*exact, *unweighted)}
        run_on_workers([*exact, *unweighted], KINDS, root)
        for kind in KINDS:
            wanted = {case.name: one_process(case, stores[case.name], kind) for case in exact}
            found = {case.name: trained(case, kind, root) for case in exact}
            for name in wanted:
                result[f"{kind}.{name}"] = largest_difference(found[name], wanted[name])
            result[f"{kind}.running_statistics"] = max(
                largest_difference(found[name], wanted[name], statistics=True) for name in wanted
            )
            for case in unweighted:
                result[f"{kind}.{case.name}"] = largest_difference(trained(case, kind, root), wanted[str(case.tiles)])
            by_samples = one_process(LOPSIDED, stores[LOPSIDED.name], kind, by_samples=True)
            result[f"{kind}.by_samples"] = largest_difference(by_samples, wanted[LOPSIDED.name])
            for network, case in controls.items():
                if case.name in known:
                    backwards = one_process(case, stores[case.name], kind, backwards=True)
                    result[f"{kind}.rounding.{network}"] = largest_difference(backwards, wanted[case.name])
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="leave out the ResNet-18")
    quick = parser.parse_args().quick
    conditions = {"steps": UNET_CASES[0].steps, "optimiser": "SGD, momentum 0.9", "quick": quick, "backend": "gloo"}
    print(json.dumps(benchmark_result("exactness", conditions, figures(quick)), indent=2))


if __name__ == "__main__":
    main()
