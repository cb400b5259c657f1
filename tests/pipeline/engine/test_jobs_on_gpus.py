"""Several jobs on one GPU: how many, and that each takes its part of the memory."""

from types import SimpleNamespace

import pytest
import torch

from pipeline.engine import executors
from pipeline.engine.executors import LocalProcesses, processes_for
from pipeline.recipes.loading import load_recipe
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.training.trainer import make_trainer
from pipeline.translation import translating
from tests.pipeline.engine.test_executors import _free_memory

pytestmark = pytest.mark.whole


def test_a_large_gpu_holds_three_jobs(monkeypatch) -> None:
    recipe = load_recipe("scenes", ["--trainer.threads=null"])
    monkeypatch.setattr(executors, "cores", lambda: 16)
    _free_memory(monkeypatch, 1e12)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for memory, jobs in ((85e9, 6), (45e9, 4), (16e9, 2)):
        sizes = [memory, 90e9]
        properties = lambda number, sizes=sizes: SimpleNamespace(total_memory=sizes[number])  # noqa: E731
        monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
        assert processes_for(recipe, ["0", "1"]) == jobs


def test_jobs_on_one_gpu_share_its_memory(monkeypatch) -> None:
    with LocalProcesses(3, ["5", "7"]) as processes:
        shares = "__import__('os').environ['BILDWORT_GPU_JOBS']"
        assert processes.submit(eval, shares).result(60) == "2"
    taken = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", taken.append)
    for jobs in ("1", "3"):
        monkeypatch.setenv("BILDWORT_GPU_JOBS", jobs)
        make_trainer(TrainerSettings(accelerator="cpu"))
    assert taken == [0.3]


def test_a_gpu_searches_more_words_at_once_as_its_memory_allows(monkeypatch) -> None:
    gpu, cpu = (
        SimpleNamespace(strategy=SimpleNamespace(root_device=torch.device(name))) for name in ("cuda", "cpu")
    )  # fmt: skip
    ours, other = SimpleNamespace(has_graphs=True), SimpleNamespace()
    for free, tokens, times in ((80, 2048, 8), (9, 2048, 2), (1, 2048, 1), (80, 10_000, 1), (80, 32_768, 1)):
        monkeypatch.setattr(translating, "free_memory", lambda _, free=free: free * 2**30)
        assert translating._times(ours, gpu, tokens) == times
        assert translating._times(ours, cpu, tokens) == translating._times(other, gpu, tokens) == 1
