"""Captions by a vision-language model of the hub, whose name stands for another commit after a stop."""

import json
from pathlib import Path

import pytest

from modules.translators.image_text import ImageTextTranslator
from pipeline.translation import translating
from tests.modules.image_text_models import save_llava
from tests.pipeline.tiny import Tiny

pytestmark = pytest.mark.whole

CAPTIONER = {"kind": "image-text-to-text", "model": "people/network", "longest": 6, "prompt": "describe this picture ."}
ARGUMENTS = (
    f"--augment.captioner={json.dumps(CAPTIONER)}", "--augment.paths=[caption:de]", "--mmt.systems=[]",
    '--vse.rows={"captioned": ["en/human", "de/caption:de"]}', "--vse.only=[captioned]", "--vse.reranker.model=null",
)  # fmt: skip


def test_captions_are_of_one_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, commits = tmp_path / "network", iter(["a" * 40, "b" * 40, "b" * 40])
    load = ImageTextTranslator.__init__

    def of_commit(self: ImageTextTranslator, *given: object) -> None:
        load(self, *given)
        self.commit = next(commits)

    monkeypatch.setattr(ImageTextTranslator, "__init__", of_commit)
    monkeypatch.setattr(translating, "EVERY", 0.0)
    monkeypatch.setattr("pipeline.translation.pretrained._PICTURES", 4)
    # one name and so one key, whatever files it stands for
    monkeypatch.setattr("pipeline.translation.pretrained.place_of", lambda *_: (str(folder), None))
    write, files = translating.write_atomically, list[Path]()

    def stopped(path: Path, content: str) -> None:
        write(path, content)
        files.append(path)
        raise KeyboardInterrupt

    made = Tiny(tmp_path / "tiny")
    assert made.main("prepare") == 0
    save_llava(folder, seed=0)
    with monkeypatch.context() as stop:
        stop.setattr(translating, "write_atomically", stopped)
        assert made.main("augment", *ARGUMENTS) != 0
    assert files
    save_llava(folder, seed=5)
    assert made.main("augment", *ARGUMENTS) == 0
    after_stop = [row["text"] for row in made.captions("synthetic-caption-de")]
    assert made.metrics("synthetic-caption-de")["commit"] == "b" * 40
    assert made.main("augment", "--force", *ARGUMENTS) == 0
    assert after_stop == [row["text"] for row in made.captions("synthetic-caption-de")]
