import pytest
import yaml

from landbalance.cluster import Node
from landbalance.config import parse_config
from landbalance.profile.job import batch_sizes, expanded


@pytest.fixture
def raw(request):
    return yaml.safe_load((request.config.rootpath / "config.yaml").read_text())


@pytest.mark.parametrize(("batch", "sizes"), [(32, [1, 2, 4, 8, 16, 32]), (12, [1, 2, 4, 8, 12]), (1, [1])])
def test_powers_of_two_up_to_the_largest_batch_of_the_model(raw, batch, sizes):
    raw["training"]["full"]["batch_size"] = batch
    raw["training"]["short"]["batch_size"] = 1
    assert batch_sizes(parse_config(raw), "havel", "unet") == sizes


def test_configured_sizes_come_first(raw):
    raw["profile"] = {"batch_sizes": [8, 2, 8]}
    assert batch_sizes(parse_config(raw), "havel", "unet") == [2, 8]


def test_ranks_follow_the_order_of_the_description():
    node = Node.model_validate(
        {"name": "n", "workers": [{"device": "cuda", "count": 2}, {"device": "cpu", "threads": 3}]}
    )
    assert [(worker.device, worker.threads) for worker in expanded(node)] == [("cuda", 1), ("cuda", 1), ("cpu", 3)]
