"""A job goes on with other workers as if nothing had happened: whole jobs, stopped in the middle of an epoch."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from landbalance.bundle import load_bundle
from landbalance.files import read_json
from landbalance.models import build_model
from projects import write_plan, write_project
from workers import CommandLine, places

TRAINING = {
    "epochs": 2,
    "class_weights": "balanced",
    "ema": 0.8,
    "clip_norm": 1.0,
    "warmup_epochs": 1,
    "checkpoint_seconds": 1000,
}
SGD = {"name": "sgd", "learning_rate": 0.02, "momentum": 0.9}
ADAMW = {"name": "adamw", "learning_rate": 0.001}


def run(folder: Path, shares, stop_after=None):
    """Run the job on workers with these shares, until its end or for some steps; return what was said."""
    write_plan(folder, shares)
    workers = [
        CommandLine(folder, "train", "e", environment=place, stop_after=stop_after if rank == len(shares) - 1 else None)
        for rank, place in enumerate(places(len(shares)))
    ]
    ends = [worker.ended() for worker in workers]
    expected = 0 if stop_after is None else 143
    assert [status for status, _ in ends] == [expected] * len(shares), "\n".join(said for _, said in ends)
    return "\n".join(said for _, said in ends)


def history(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "results" / "train" / "e" / "history.parquet").drop(columns="seconds")


def weights(folder: Path) -> dict[str, np.ndarray]:
    return load_file(folder / "results" / "train" / "e" / "model.safetensors")


def project(folder: Path, norm: str, optimiser) -> Path:
    folder.mkdir()
    training = {**TRAINING, "optimiser": optimiser}
    return write_project(folder, model={"precision": "float64", "norm": norm}, training=training, validation=5)


@pytest.mark.parametrize(("norm", "optimiser"), [("batch", SGD), ("group", ADAMW)], ids=["batch-sgd", "group-adamw"])
def test_stopped_on_2_workers_it_goes_on_with_1_with_3_and_with_other_shares(tmp_path, norm, optimiser):
    """Each stop is in the middle of an epoch (there are three steps in one); also C19 and C26."""
    unbroken, broken = (project(tmp_path / name, norm, optimiser) for name in ("unbroken", "broken"))
    run(unbroken, [8])

    run(broken, [5, 3], stop_after=2)
    position = newest_position(broken)
    assert (position["epoch"], position["step"]) == (0, 2)
    assert "going on from a checkpoint: epoch 1, step 3" in run(broken, [8], stop_after=2)
    assert "going on from a checkpoint: epoch 2, step 2" in run(broken, [2, 5, 1], stop_after=1)
    assert not (broken / "results" / "train" / "e" / "model.safetensors").exists()
    assert "going on from a checkpoint: epoch 2, step 3" in run(broken, [1, 7])

    pd.testing.assert_frame_equal(history(broken), history(unbroken), rtol=1e-10, atol=0)
    found, wanted = weights(broken), weights(unbroken)
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-10 * max(1, np.abs(values).max()), err_msg=name)
    timing = pd.read_parquet(broken / "results" / "train" / "e" / "timing.parquet")
    assert timing.groupby(["epoch", "step"])["samples"].sum().tolist() == [8, 8, 5] * 2
    assert read_json(broken / "results" / "train" / "e" / "run.json")["resumed"] == 3

    network, card = load_bundle(broken / "results" / "train" / "e")
    assert sorted(found) == sorted(build_model(card.model, 2, 3).state_dict())
    assert {parameter.device.type for parameter in network.parameters()} == {"cpu"}


def newest_position(folder: Path):
    import torch

    newest = max((folder / "results" / "train" / "e" / "checkpoints").glob("step-*.pt"))
    return torch.load(newest, weights_only=True)["position"]
