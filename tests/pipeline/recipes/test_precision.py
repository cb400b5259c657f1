"""`trainer.precision: auto`: what it comes to, where it is remembered, and that keys have it."""

import json
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from modules.training.callbacks import TensorFloat
from pipeline.recipes import precision
from pipeline.recipes.loading import load_recipe
from pipeline.recipes.precision import precision_of
from pipeline.recipes.settings import Recipe
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.training.trainer import make_trainer
from tests.pipeline.recipes.test_recipe_keys import keys
from tests.pipeline.tiny import Tiny

FAST, SLOW = 0.6, 2.2
RECIPE = """
corpus: {name: scenes, train: 24, retrieval: 12, validation: 4, test: 4, text_pairs: 40}
vse: {rows: {human: [en/human]}, only: [human], seeds: [1]}
tables: {t: {title: T, language: en, systems: {san: {rows: [human]}, dan: {vse: {model: dan}, rows: [human]}}}}
"""


@pytest.fixture(autouse=True)
def measured(monkeypatch, tmp_path: Path) -> list[float]:
    """A machine without a GPU that has not been measured; the measurements that are made of it: slow."""
    costs: list[float] = []

    def cost() -> float:
        costs.append(SLOW)
        return SLOW

    precision._of_device.cache_clear()
    monkeypatch.setenv("BILDWORT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("BILDWORT_DATA", raising=False)
    monkeypatch.setattr(precision, "bfloat16_cost", cost)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    return costs


def on_a_machine(monkeypatch, tmp_path: Path, cost: float, *overrides: str) -> Recipe:
    """The recipe, which names no precision, on a machine that was never measured."""
    precision._of_device.cache_clear()
    monkeypatch.setenv("BILDWORT_CACHE", str(tmp_path / f"cache of {cost}"))
    monkeypatch.setattr(precision, "bfloat16_cost", lambda: cost)
    path = tmp_path / "mine.yaml"
    path.write_text(RECIPE)
    return load_recipe(str(path), overrides)


@pytest.mark.parametrize(("cost", "chosen"), [(FAST, "bf16-mixed"), (SLOW, "32-true"), (float("inf"), "32-true")])
def test_a_recipe_that_names_none_has_what_the_machine_is_fast_at(monkeypatch, tmp_path, cost, chosen) -> None:
    recipe = on_a_machine(monkeypatch, tmp_path, cost)
    systems = [system.vse for system in recipe.tables["t"].systems.values()]
    sections = [recipe.mmt, recipe.augment, recipe.vse, *systems]
    assert {section.trainer.precision for section in sections} == {chosen}
    named = on_a_machine(monkeypatch, tmp_path, cost, f"--trainer.precision={chosen}")
    assert keys(recipe, tmp_path) == keys(named, tmp_path)


def test_keys_differ_where_the_choice_does_and_not_else(monkeypatch, tmp_path: Path) -> None:
    fast, slow = (keys(on_a_machine(monkeypatch, tmp_path, cost), tmp_path) for cost in (FAST, SLOW))
    assert slow[-1] != fast[-1]  # retrieval
    assert keys(on_a_machine(monkeypatch, tmp_path, FAST), tmp_path) == fast


@pytest.mark.parametrize(
    ("named", "mmt", "vse"),
    [
        (["--trainer.precision=32-true"], "32-true", "32-true"),
        (["--mmt.trainer.precision=32-true"], "32-true", "bf16-mixed"),
        (["--trainer.precision=32-true", "--vse.trainer.precision=auto"], "32-true", "bf16-mixed"),
    ],
)
def test_what_a_recipe_names_stays(monkeypatch, tmp_path: Path, named, mmt, vse) -> None:
    recipe = on_a_machine(monkeypatch, tmp_path, FAST, *named)
    assert (recipe.mmt.trainer.precision, recipe.vse.trainer.precision) == (mmt, vse)


@pytest.mark.parametrize(
    ("recipe", "chosen"), [("scenes", "32-true"), ("multi30k-official", "bf16-mixed"), ("scenes-gxn", "32-true")]
)
def test_recipes_with_recorded_figures_are_measured_nowhere(measured, recipe: str, chosen: str) -> None:
    loaded = load_recipe(recipe)
    assert (loaded.mmt.trainer.precision, loaded.vse.trainer.precision) == (chosen, chosen)
    assert measured == []


def test_it_is_measured_once_and_remembered(measured, monkeypatch, tmp_path: Path) -> None:
    auto = TrainerSettings(accelerator="cpu")
    assert [precision_of(auto) for _ in range(3)] == ["32-true"] * 3
    assert len(measured) == 1
    file = tmp_path / "cache" / "precision.json"
    assert json.loads(file.read_text()) == {platform.node(): "32-true"}
    precision._of_device.cache_clear()  # another process
    assert precision_of(auto) == "32-true"
    assert len(measured) == 1
    monkeypatch.setattr(platform, "node", lambda: "other")  # that shares the folder
    precision._of_device.cache_clear()
    assert precision_of(auto) == "32-true"
    assert len(measured) == 2
    assert len(json.loads(file.read_text())) == 2


@pytest.mark.parametrize("content", ["{", "[]", '"x"', json.dumps({platform.node(): "64-true"}), "\x00"])
def test_a_damaged_file_is_made_again(measured, tmp_path: Path, content: str) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "precision.json").write_text(content)
    assert precision_of(TrainerSettings(accelerator="cpu")) == "32-true"
    assert len(measured) == 1
    assert json.loads((tmp_path / "cache" / "precision.json").read_text()) == {platform.node(): "32-true"}


def test_where_nothing_can_be_written_it_is_measured_all_the_same(measured, monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BILDWORT_CACHE", str(tmp_path / "file" / "cache"))
    assert precision_of(TrainerSettings(accelerator="cpu")) == "32-true"
    assert len(measured) == 1


def test_where_no_lock_can_be_had_it_is_measured_all_the_same(measured, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(precision, "_PATIENCE", 0.1)
    with FileLock(tmp_path / "precision.lock"):
        chosen = precision._of_device.__wrapped__(
            tmp_path / "precision.json", "here", precision.bfloat16_cost, "32-true"
        )
    assert (chosen, measured) == ("32-true", [SLOW])


@pytest.mark.parametrize(
    ("capability", "cost", "chosen"),
    [((7, 5), FAST, "32-true"), ((8, 0), FAST, "bf16-mixed"), ((9, 0), FAST, "bf16-mixed"), ((9, 0), SLOW, "tf32")],
)
def test_a_gpu_that_has_bfloat16_is_measured_once(measured, monkeypatch, tmp_path, capability, cost, chosen) -> None:
    of_gpu = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "H100")
    monkeypatch.setattr(precision, "bfloat16_cost_of_gpu", lambda: of_gpu.append(cost) or cost)
    assert [precision_of(TrainerSettings(accelerator="auto")) for _ in range(2)] == [chosen] * 2
    assert (len(of_gpu), measured) == (int(capability >= (8, 0)), [])
    assert precision_of(TrainerSettings(accelerator="cpu")) == "32-true"  # the processor's
    assert len(measured) == 1
    known = json.loads((tmp_path / "cache" / "precision.json").read_text())
    assert len(known) == 1 + len(of_gpu)


def test_on_apple_gpus_it_is_float32(measured, monkeypatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert [precision_of(TrainerSettings(accelerator=one)) for one in ("auto", "mps")] == ["32-true"] * 2
    assert measured == []


@pytest.mark.parametrize(("cost", "chosen"), [(FAST, "bf16-mixed"), (SLOW, "32-true")])
def test_lightning_gets_it(monkeypatch, cost: float, chosen: str) -> None:
    monkeypatch.setattr(precision, "bfloat16_cost", lambda: cost)
    assert make_trainer(TrainerSettings(accelerator="cpu", progress=False)).precision == chosen


def test_products_of_training_steps_alone_are_in_tensor_float(monkeypatch) -> None:
    trainer = make_trainer(TrainerSettings(accelerator="cpu", progress=False, precision="tf32"))
    (tensor_float,) = (one for one in trainer.callbacks if isinstance(one, TensorFloat))
    assert trainer.precision == "32-true"
    for device, within in (("cuda", "high"), ("cpu", "highest")):
        monkeypatch.setattr(type(trainer.strategy), "root_device", torch.device(device))
        tensor_float.on_train_batch_start(trainer)
        assert torch.get_float32_matmul_precision() == within
        tensor_float.on_train_batch_end()
        assert torch.get_float32_matmul_precision() == "highest"
    plain = make_trainer(TrainerSettings(accelerator="cpu", progress=False, precision="32-true"))
    assert not any(isinstance(one, TensorFloat) for one in plain.callbacks)


def test_float32_is_float32_whatever_the_environment_says() -> None:
    torch.set_float32_matmul_precision("high")  # as TORCH_ALLOW_TF32_CUBLAS_OVERRIDE=1 does it
    make_trainer(TrainerSettings(accelerator="cpu", progress=False, precision="32-true"))
    assert torch.get_float32_matmul_precision() == "highest"


def test_the_manifest_has_what_was_chosen(monkeypatch, fresh: Tiny) -> None:
    monkeypatch.setattr(precision, "bfloat16_cost", lambda: FAST)
    assert fresh.main("vse", "--augment.paths=[]", "--vse.rows={human: [en/human]}", "--vse.only=[human]",
                      "--vse.epochs=1", "--trainer.precision=auto") == 0  # fmt: skip
    found = json.loads((fresh.job("vse-san-human-1") / "manifest.json").read_text())
    assert (found["settings"]["trainer"], found["runtime"]["precision"]) == ({"precision": "bf16-mixed"}, "bf16-mixed")


def test_processes_that_start_together_choose_the_same(tmp_path: Path) -> None:
    costs = iter([FAST, SLOW])

    def cost() -> float:
        time.sleep(0.2)
        return next(costs)

    with ThreadPoolExecutor(2) as pool:  # threads stand for processes, each with a lock of its own
        file = tmp_path / "cache" / "precision.json"
        first, second = pool.map(lambda _: precision._of_device.__wrapped__(file, "here", cost, "32-true"), range(2))
    assert first == second
    assert len(list(costs)) == 1


def test_without_a_home_each_run_measures(measured: list[float], monkeypatch) -> None:
    def homeless(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    assert precision_of(TrainerSettings("cpu", precision="auto")) == "32-true"
    assert measured == [SLOW]
