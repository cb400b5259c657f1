"""Translators of a corpus whose pairs are about no picture, in two languages beside English, and captions by them."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.cli import main
from tests.data.layouts import entries, write_karpathy
from tests.data.official import pack
from tests.pipeline.tiny import TINY, at

CORPUS = """
corpus:
  name: karpathy
  captions: dataset.json
  languages: [en, ja, zh]
  translated: {ja: ja.tsv, zh: zh.tsv}
  parallel: {ja: tatoeba/jpn-eng.tsv.gz, zh: tatoeba/cmn-eng.tsv.gz}
  regions: regions
"""
SETTINGS = [
    "--mmt.directions=[en-ja, zh-en]", "--mmt.systems=[mt]", "--mmt.finetune.steps=60", "--mmt.finetune.eval_every=30",
    "--augment.paths=[mt:en-ja, mt:zh-en]",
    "--vse.rows={en: [en/human], all: [2*en/human, 2*ja/mt:en-ja]}", "--vse.only=[all]", "--vse.test=[en, ja]",
    "--vse.epochs=1", "--vse.decay_epoch=1", "--vse.reranker.model=null",
]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The folder of a data root, a recipe and its artifacts."""
    folder = tmp_path_factory.mktemp("text-only")
    write_karpathy(folder)
    pack(folder / "zh.tsv", [f"{image['cocoid']}\t狗在公园{image['imgid']}里" for image in entries()])
    for name, text in (("jpn", "犬{}が公園にいる"), ("cmn", "狗在公园{}里")):
        lines = [f"a dog {n} in the park\t{text.format(n)}" for n in range(60)]
        pack(folder / "tatoeba" / f"{name}-eng.tsv.gz", lines)
    tiny = TINY.split("corpus:")[0].replace("base: scenes\n", "") + "mmt:" + TINY.split("mmt:", 1)[1]
    (folder / "made.yaml").write_text(tiny + CORPUS)
    return folder


def run(made: Path, stage: str, *more: str) -> int:
    with at(made):
        return main([stage, "--recipe", str(made / "made.yaml"), f"--corpus.root={made}", *SETTINGS, *more])


@pytest.mark.slow
def test_they_learn_from_the_text_and_write_captions_of_training_images(made: Path) -> None:
    for stage in ("prepare", "mmt", "augment", "vse"):
        assert run(made, stage) == 0
    jobs = made / "artifacts" / "jobs"
    trained = {path.name for path in jobs.glob("*mt-*")}
    assert {"nmt-en-ja", "mt-en-ja", "nmt-zh-en", "mt-zh-en"} <= trained
    for path, (origin, target) in {"mt-en-ja": ("en", "ja"), "mt-zh-en": ("zh", "en")}.items():
        (table,) = jobs.glob(f"synthetic-{path}/*/captions.parquet")
        written = pq.read_table(table).to_pylist()
        assert {row["language"] for row in written} == {target}
        assert {row["split"] for row in written} == {"train"}
        assert all(f"#{origin}" in row["parent"] for row in written)


def test_a_group_that_leaves_out_captions_nobody_draws_is_one_line(made: Path, capsys) -> None:

    assert run(made, "vse", "--vse.rows={en: [2*en/human + 0*ja/human]}", "--vse.only=[en]", "--vse.test=[en]") == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: vse.rows.en has `0*ja/human`, but none of its groups draws ja/human; leave it out")
