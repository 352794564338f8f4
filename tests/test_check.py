import pytest
import yaml

from landbalance.check import check_run
from landbalance.cluster import Cluster
from landbalance.config import parse_config
from landbalance.errors import UserError

SLURM = {"partition": "gpu"}


@pytest.fixture
def raw(request):
    return yaml.safe_load((request.config.rootpath / "config.yaml").read_text())


def cluster(device="cpu", count=2, **more):
    return Cluster.model_validate({"nodes": [{"name": "n", "workers": [{"device": device, "count": count}], **more}]})


def check(raw, described):
    check_run(parse_config(raw), described, "mine.yaml", "cluster.yaml")


def test_the_demo_fits(raw):
    check(raw, cluster())


def test_a_local_source_that_is_not_there_is_named(raw, tmp_path):
    raw["datasets"]["havel"]["sources"] = [{"path": str(tmp_path / "gone"), "licence": "l"}]
    with pytest.raises(UserError, match=r"mine\.yaml: datasets\.havel\.sources\.0\.path: .*gone is not there"):
        check(raw, cluster())


def test_a_batch_smaller_than_equal_shares_is_named(raw):
    raw["training"]["short"]["batch_size"] = 3
    with pytest.raises(UserError, match=r"training\.short\.batch_size: found 3.*havel-equal.*to 4 workers"):
        check(raw, cluster(count=4))


def test_starting_weights_must_be_there_or_come_from_this_run(raw):
    raw["models"]["unet"]["weights"] = "results/train/havel-equal/model.safetensors"
    check(raw, cluster())
    raw["models"]["unet"]["weights"] = "gone.safetensors"
    with pytest.raises(UserError, match=r"mine\.yaml: models\.unet\.weights: gone\.safetensors is not there"):
        check(raw, cluster())


def test_a_kind_of_node_that_is_not_described_is_named(raw):
    raw["experiments"]["havel"]["nodes"] = ["m"]
    with pytest.raises(UserError, match=r"mine\.yaml: experiments\.havel\.nodes: no node .* is called m.*allowed: n"):
        check(raw, cluster())


def test_equal_shares_count_the_nodes_of_the_experiment_alone(raw):
    raw["training"]["short"]["batch_size"] = 3
    raw["experiments"]["havel-equal"]["nodes"] = ["n"]
    other = {"name": "m", "workers": [{"device": "cpu", "count": 9}]}
    check(raw, Cluster.model_validate({"nodes": [cluster(count=3).nodes[0].model_dump(), other]}))


def test_a_gpu_that_this_machine_does_not_have_is_named(raw):
    with pytest.raises(UserError, match=r"cluster\.yaml: nodes\.n: 99 workers with device: cuda, but torch finds"):
        check(raw, cluster("cuda", 99))


def test_gpus_of_the_cluster_are_not_looked_for_here(raw):
    check(raw, cluster("cuda", 20, slurm=SLURM))
