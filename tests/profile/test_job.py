"""Before the clock starts: whom to start, which batches matter, and whether an old profile still holds."""

import pytest
import yaml

from landbalance.cluster import Node
from landbalance.config import parse_config
from landbalance.profile import job
from landbalance.profile.job import batches, dependencies, expanded
from landbalance.profiles import Machine
from landbalance.tiles import open_tiles
from stores import write_store


@pytest.fixture
def raw(request):
    return yaml.safe_load((request.config.rootpath / "config.yaml").read_text())


def test_batches_of_all_experiments_of_the_model(raw):
    raw["training"]["full"]["batch_size"] = 48
    assert batches(parse_config(raw), "havel", "unet") == [32, 48]
    raw["experiments"]["havel"]["training"] = "short"
    assert batches(parse_config(raw), "havel", "unet") == [32]


def test_ranks_follow_the_order_of_the_description():
    node = Node.model_validate(
        {"name": "n", "workers": [{"device": "cuda", "count": 2}, {"device": "cpu", "threads": 3}]}
    )
    assert [(worker.device, worker.threads) for worker in expanded(node)] == [("cuda", 1), ("cuda", 1), ("cpu", 3)]


MACHINE = Machine(processor="p", cores=2, memory_bytes=1, python="3", torch="2", libraries={"torch": "2"})
NODE = Node.model_validate({"name": "n", "workers": [{"device": "cpu"}]})


@pytest.fixture(scope="module")
def info(tmp_path_factory):
    return open_tiles(write_store(tmp_path_factory.mktemp("store") / "d")).info


CHANGES = [
    ("settings", lambda raw: raw.update(profile={"repeats": 9}), NODE, MACHINE),
    ("model", lambda raw: raw["models"]["unet"].update(width=8), NODE, MACHINE),
    ("batches", lambda raw: raw["training"]["full"].update(batch_size=8), NODE, MACHINE),
    ("workers", lambda raw: None, NODE.model_copy(update={"workers": [*NODE.workers, *NODE.workers]}), MACHINE),
    ("machine", lambda raw: None, NODE, MACHINE.model_copy(update={"libraries": {"torch": "3"}})),
    ("machine", lambda raw: None, NODE, MACHINE.model_copy(update={"clock_policy": "powersave"})),
    (None, lambda raw: raw["training"]["full"].update(epochs=1), NODE, MACHINE),
    (None, lambda raw: raw["report"].update(title="other"), NODE, MACHINE),
]


@pytest.mark.parametrize(("what", "change", "node", "machine"), CHANGES)
def test_timings_depend_on_this_and_nothing_else(raw, info, what, change, node, machine):
    before = dependencies("havel", "unet", NODE, parse_config(raw), info, MACHINE)
    change(raw)
    after = dependencies("havel", "unet", node, parse_config(raw), info, machine)
    assert [name for name in before if before[name] != after[name]] == ([what] if what else [])


def test_other_code_is_another_profile(raw, info, monkeypatch):
    before = dependencies("havel", "unet", NODE, parse_config(raw), info, MACHINE)
    monkeypatch.setattr(job, "_MEASURING_CODE", ("profile",))
    assert dependencies("havel", "unet", NODE, parse_config(raw), info, MACHINE)["code"] != before["code"]
