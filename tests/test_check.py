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


def test_a_gpu_that_this_machine_does_not_have_is_named(raw):
    with pytest.raises(UserError, match=r"cluster\.yaml: nodes\.n: 99 workers with device: cuda, but torch finds"):
        check(raw, cluster("cuda", 99))


def test_gpus_of_the_cluster_are_not_looked_for_here(raw):
    check(raw, cluster("cuda", 20, slurm=SLURM))
