import time

import torch

from landbalance.distributed.clock import Clock

CPU = torch.device("cpu")


def busy(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_computing_and_waiting_are_told_apart():
    clock = Clock(CPU)
    clock.start()
    busy(0.02)
    with clock.waiting():
        time.sleep(0.05)
    busy(0.01)
    clock.pause()
    assert clock.computed >= 0.03
    assert clock.waited >= 0.05
    assert clock.elapsed == clock.computed + clock.waited


def test_an_emulated_worker_idles_in_proportion_to_what_it_computed():
    clock = Clock(CPU, slowdown=4)
    clock.start()
    busy(0.02)
    with clock.waiting():
        pass
    assert clock.computed >= 0.08
    assert clock.waited < 0.02


def test_waiting_is_not_slowed_down():
    clock = Clock(CPU, slowdown=50)
    clock.start()
    with clock.waiting():
        time.sleep(0.05)
    clock.pause()
    assert clock.computed < clock.waited
