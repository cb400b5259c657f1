"""Translating goes on where it was stopped, and ends with the same translations."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
from torch import nn

from modules.training.translation import Synthesis
from modules.translators.beam import BeamSettings, Hypothesis
from pipeline.engine.artifacts import read_manifest, write_manifest
from pipeline.errors import RecipeError
from pipeline.recipes.trainer_settings import TrainerSettings
from pipeline.translation import translating as kept_translations
from pipeline.translation.evaluation import read_translations
from pipeline.translation.translating import (
    KeptTranslations,
    Translated,
    TranslationMemory,
    translate_all,
    translator_identity,
)
from pipeline.translation.translator_files import load_translator
from tests.pipeline.tiny import Tiny

Run = Callable[..., list[list[Translated]]]


class PowerCutError(Exception):
    """A stop from outside."""


@pytest.fixture(scope="module")
def run(tiny: Tiny) -> Run:
    """Translate the test sentences in batches of a few, keeping what is done."""
    network, bpe = load_translator(tiny.job("mt-en-de"))
    sentences = [row["source"] for row in read_translations(tiny.job("mt-en-de"), "test")]
    source = bpe.encode_all(sentences, "en")
    settings = TrainerSettings(accelerator="cpu", devices=1, progress=False, precision="32-true")

    def translated(kept: Path | None = None) -> list[list[Translated]]:
        return translate_all(
            network, bpe, source, [None] * len(source), None, "de", BeamSettings(2), 12, settings, 2, kept=kept
        )

    return translated


@pytest.fixture
def steps(monkeypatch) -> list[int]:
    """The batches that are translated, and the number of the one before which the power is cut."""
    seen: list[int] = [-1]  # first the batch of the cut
    step = Synthesis.predict_step

    def watched(self: Synthesis, batch: dict[str, Any], batch_idx: int) -> None:
        if len(seen) - 1 == seen[0]:
            raise PowerCutError
        seen.append(len(batch["index"]))
        step(self, batch, batch_idx)

    monkeypatch.setattr(Synthesis, "predict_step", watched)
    return seen


@pytest.mark.parametrize("every", [0.0, 60.0])
def test_a_stopped_run_goes_on_behind_what_is_on_disk(
    run: Run, steps: list[int], tmp_path: Path, monkeypatch, every: float
) -> None:
    monkeypatch.setattr(kept_translations, "EVERY", every)
    whole = run()
    batches, sentences = len(steps) - 1, sum(steps[1:])
    assert batches > 3
    assert sentences == len(whole)
    for cut in (2, 1):  # the second run is cut too
        steps[:] = [cut]
        with pytest.raises(PowerCutError):
            run(tmp_path)
    steps[:] = [-1]
    assert run(tmp_path) == whole
    assert len(steps) - 1 == (batches - 3 if every == 0 else batches)
    assert len(list(tmp_path.glob("translated-0-of-1-*.jsonl"))) == (batches if every == 0 else 0)
    steps[:] = [-1]
    assert run(tmp_path) == whole
    assert len(steps) - 1 == (1 if every == 0 else batches)


def test_hypotheses_come_back_as_they_were_for_the_same_number_of_ranks(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(kept_translations, "EVERY", 0.0)
    kept, synthesis = KeptTranslations(tmp_path), Synthesis(nn.Identity(), BeamSettings(1), 1, 2)
    assert kept.read(1, 2) == {}
    one, other = Hypothesis([4, 5], -0.1234567890123, {"logp": -1 / 3}), Hypothesis([], 0.0)
    synthesis.found = {3: [one], 0: [other, one]}
    kept.on_predict_batch_end(pl.Trainer(logger=False), synthesis)
    assert KeptTranslations(tmp_path).read(1, 2) == synthesis.found
    assert KeptTranslations(tmp_path).read(0, 2) == KeptTranslations(tmp_path).read(1, 3) == {}


@pytest.mark.parametrize("text", ["[3, [{", '{"a": 1}\n', '[1, [{"words": 3}]]\n'])
def test_a_damaged_file_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "translated-0-of-1-000000000000.jsonl"
    path.write_text(text)
    with pytest.raises(RecipeError, match=r"translated-0-of-1-0+\.jsonl: not readable \(.*\); delete it and run again"):
        KeptTranslations(tmp_path).read(0, 1)


def jobs_folder(root: Path, name: str) -> Path:
    folder = root / "synthetic" / name
    folder.mkdir(parents=True)
    return folder


def test_a_memory_knows_what_the_same_translator_has_translated_in_the_same_way(
    tiny: Tiny, steps: list[int], tmp_path: Path
) -> None:
    network, bpe = load_translator(tiny.job("mt-en-de"))
    source = bpe.encode_all([row["source"] for row in read_translations(tiny.job("mt-en-de"), "test")], "en")
    settings = TrainerSettings(accelerator="cpu", devices=1, progress=False, precision="32-true")

    def translated(name: str, sentences: list[list[int]], translator: str = "one", beam: int = 2) -> tuple[Any, int]:
        memory = TranslationMemory(jobs_folder(tmp_path, name), translator)
        steps[:] = [-1]
        found = translate_all(
            network, bpe, sentences, [None] * len(sentences), None, "de", BeamSettings(beam), 200, settings, 2,
            kept=tmp_path / name, memory=memory,
        )  # fmt: skip
        assert sum(steps[1:]) == max(1, len(sentences) - memory.recalled)  # Lightning needs a batch
        return found, memory.recalled

    few, known = translated("a", source[:3])
    assert known == 0
    everything, known = translated("b", source)
    assert known == sum(sentence in source[:3] for sentence in source)
    assert everything[:3] == few
    turned, known = translated("c", source[::-1])
    assert (turned, known) == (everything[::-1], len(source))
    (left,) = (tmp_path / "synthetic" / "c").iterdir()
    (tmp_path / "synthetic" / "killed").mkdir()
    (tmp_path / "synthetic" / "killed" / left.name).write_bytes(left.read_bytes()[:-9])
    assert translated("g", source)[1] == len(source)
    stopped = TranslationMemory(tmp_path / "synthetic" / "killed", "one")
    stopped.recall(source[:1], BeamSettings(2), 2, "32-true")
    stopped.keep(source[:1], {0: [Hypothesis([4], -1.0)]})  # in the place of the damaged one
    assert stopped.recall(source[:1], BeamSettings(2), 2, "32-true")[0] == [Hypothesis([4], -1.0)]
    shutil.rmtree(tmp_path / "synthetic" / "killed")
    assert translated("d", source, translator="another")[1] == translated("e", source, beam=1)[1] == 0
    (tmp_path / "synthetic" / "b").rename(tmp_path / "synthetic" / "b.before")  # what --force replaces
    for name in ("a", "c", "g"):
        shutil.rmtree(tmp_path / "synthetic" / name)
    assert translated("f", source)[1] == 0


def test_a_translator_that_was_trained_again_is_another_one(tiny: Tiny, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny.job("mt-en-de"), tmp_path / "mt-en-de"))
    before = translator_identity(folder)
    assert before == translator_identity(tiny.job("mt-en-de"))
    write_manifest(folder, read_manifest(folder) | {"finished": "2099-01-01T00:00:00Z"})  # as --force does
    assert translator_identity(folder) != before
