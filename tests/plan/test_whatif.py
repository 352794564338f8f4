import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from landbalance import cli
from landbalance.cluster import Cluster
from landbalance.config import Config
from landbalance.errors import UserError
from landbalance.files import write_json
from landbalance.layout import Layout
from landbalance.plan import imagined_cluster
from landbalance.profiles import NodeProfile


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    return make_cluster(gpu=(1, [{"device": "cuda"}]), cpu=(2, [{"device": "cpu", "count": 2}]))


def _counts(cluster: Cluster) -> dict[str, int]:
    return {node.name: node.count for node in cluster.nodes}


def test_counts_are_set_or_added(cluster: Cluster) -> None:
    assert _counts(imagined_cluster("gpu=4", cluster)) == {"gpu": 4, "cpu": 2}
    assert _counts(imagined_cluster("gpu=+2, cpu=+1", cluster)) == {"gpu": 3, "cpu": 3}
    assert _counts(imagined_cluster("cpu=0", cluster)) == {"gpu": 1}
    assert _counts(cluster) == {"gpu": 1, "cpu": 2}


@pytest.mark.parametrize("change", ["gpus=2", "gpu", "gpu=-1", "gpu=2;cpu=1", ""])
def test_a_mistaken_change_says_what_is_allowed(cluster: Cluster, change: str) -> None:
    with pytest.raises(UserError, match=r"--what-if: found .*gpu=\+2.* for the kinds gpu, cpu"):
        imagined_cluster(change, cluster)


def test_no_node_is_left(cluster: Cluster) -> None:
    with pytest.raises(UserError, match="leaves no node"):
        imagined_cluster("gpu=0,cpu=0", cluster)


@pytest.fixture
def folder(
    tmp_path: Path,
    cluster: Cluster,
    make_config: Callable[..., Config],
    make_profile: Callable[..., NodeProfile],
) -> Path:
    """A folder with a configuration, two cluster descriptions and profiles; there are no tiles."""
    layout = Layout(tmp_path / "results")
    config = json.loads(make_config(batch_size=64, norm="batch").model_dump_json(exclude_none=True))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(json.loads(cluster.model_dump_json(exclude_none=True))))
    (tmp_path / "other.yaml").write_text("nodes: [{name: cpu, count: 5, workers: [{device: cpu, count: 2}]}]\n")
    made = {
        "gpu": make_profile(cluster.nodes[0], [(0.0, 0.01)], caps=[96]),
        "cpu": make_profile(cluster.nodes[1], [(0.0, 0.1)], caps=[16], allreduce=(0.01, 0.0)),
    }
    for name, profile in made.items():
        write_json(layout.profile("havel", "unet", name), profile.model_dump(mode="json"))
    return tmp_path


def _what_if(folder: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str], str]:
    files = {"--config": "config.yaml", "--cluster": "cluster.yaml", "--results": "results"}
    options = [word for option, name in files.items() for word in (option, str(folder / name))]
    status = cli.main(["plan", "demo", *options, *arguments])
    captured = capsys.readouterr()
    return status, captured.out.splitlines(), captured.err


def _row(line: str) -> list[Any]:
    return [cell for cell in line.split("  ") if cell]


def test_what_other_nodes_and_batches_would_give(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    status, lines, _ = _what_if(
        folder, capsys, "--what-if", "gpu=+2", "--what-if", str(folder / "other.yaml"),
        "--batch-size", "64", "--batch-size", "256",
    )  # fmt: skip
    assert status == 0
    head = lines[0].split()
    assert head[:4] == ["nodes", "workers", "batch", "step"]
    now, more, larger, other, none = (_row(line) for line in lines[1:6])
    # 64 samples: 46 + 4·4.5 take 0.46 s of the GPU's 100 samples/s, 0.5 s of five on a CPU worker.
    assert [cell.strip() for cell in now[:4]] == ["now", "1 × gpu + 2 × cpu", "5 of 5", "64"]
    assert [cell.strip() for cell in more[:2]] == ["1", "3 × gpu + 2 × cpu"]
    assert float(more[6].split()[0]) > 2
    assert more[3].strip() == "64"
    assert larger[3].strip() == "256"
    assert [cell.strip() for cell in other[:3]] == ["3", "5 × cpu", "10 of 10"]
    # Ten workers hold 16 samples each, and batch norm cannot compute in rounds.
    assert none[2].strip() == "not possible"
    text = "\n".join(lines[6:])
    assert "4: training.short.batch_size: found 256" in text
    assert "at most 160 samples in memory" in text
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_batch_size_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines, _ = _what_if(folder, capsys, "--batch-size", "32")
    assert status == 0
    assert [_row(line)[3].strip() for line in lines[1:3]] == ["64", "32"]
    status, _, errors = _what_if(folder, capsys, "--batch-size", "0")
    assert status == 1
    assert "--batch-size: found 0; allowed: 1 or more" in errors


def test_an_imagined_node_needs_a_profile(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "other.yaml").write_text("nodes: [{name: tpu, workers: [{device: cuda}]}]\n")
    status, _, errors = _what_if(folder, capsys, "--what-if", str(folder / "other.yaml"))
    assert status == 1
    assert "tpu.json: not found" in errors


def test_the_commands_of_the_guide(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "plan.md").read_text()
    block = re.search(r"```bash\n(.*?)```", guide, flags=re.DOTALL)
    assert block is not None
    commands = [line.split("#")[0].split() for line in block[1].splitlines()]
    assert len(commands) >= 3
    for program, stage, _, *words in commands:
        assert (program, stage) == ("landbalance", "plan")
        here = {"other-site.yaml": str(folder / "other.yaml")}
        status, lines, errors = _what_if(folder, capsys, *(here.get(w, w.replace("local=", "gpu=")) for w in words))
        assert status == 0, errors
        assert len(lines) >= 3
