import logging

import pytest
import torch

from landbalance.train.checkpoint import Checkpoint, Position, load_checkpoint, save_checkpoint


@pytest.fixture
def checkpoint():
    position = Position(epoch=2, step=3, loss=1.5, weight=7.0, history=[{"epoch": 1.0}], timing=[{"rank": 0.0}])
    return Checkpoint(position, {"w": torch.arange(3.0)}, None, {"state": {}, "param_groups": []})


def test_a_checkpoint_comes_back_as_it_was(tmp_path, checkpoint):
    save_checkpoint(tmp_path, "job", 17, checkpoint)
    found = load_checkpoint(tmp_path, "job")
    assert found.position == checkpoint.position
    assert found.network["w"].tolist() == [0, 1, 2]


def test_only_two_are_kept_and_the_newest_is_used(tmp_path, checkpoint):
    for step in (1, 20, 300):
        checkpoint.position.step = step
        save_checkpoint(tmp_path, "job", step, checkpoint)
    assert len(list(tmp_path.iterdir())) == 2
    assert load_checkpoint(tmp_path, "job").position.step == 300


@pytest.mark.parametrize("damage", [b"", b"something else", None])
def test_a_damaged_newest_one_falls_back_to_the_one_before(tmp_path, checkpoint, caplog, damage):
    save_checkpoint(tmp_path, "job", 1, checkpoint)
    checkpoint.position.step = 4
    newest = save_checkpoint(tmp_path, "job", 2, checkpoint)
    content = newest.read_bytes()
    newest.write_bytes(content[: len(content) // 2] if damage is None else damage)
    with caplog.at_level(logging.WARNING):
        assert load_checkpoint(tmp_path, "job").position.step == 3
    assert f"{newest} is damaged" in caplog.text


def test_a_checkpoint_of_another_job_is_not_used(tmp_path, checkpoint, caplog):
    save_checkpoint(tmp_path, "job", 1, checkpoint)
    assert load_checkpoint(tmp_path, "another") is None
    assert "other settings or data" in caplog.text


def test_a_folder_without_checkpoints_gives_none(tmp_path):
    assert load_checkpoint(tmp_path / "nowhere", "job") is None
