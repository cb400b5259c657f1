"""From a folder of pictures and English captions to German search answers: four commands, no edited file.

The regions are of a small ViT that is trained here on other pictures; the translator has random weights, so its German
is nonsense: what is tested of it is the way.
"""

import json
import shlex
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from data.pictures.regions import RegionStore
from pipeline.cli import main
from pipeline.gallery.gallery import Gallery
from pipeline.recipes.loading import load_recipe
from pipeline.reporting.opening import on_regions
from tests.modules.dual_networks import save
from tests.modules.translation_models import save_marian
from tests.pipeline.init.own_pictures import COUNT, draw_pictures, trained_backbone, write_scenes, write_tsv
from tests.pipeline.tiny import at

pytestmark = pytest.mark.whole

QUICK = "--vse.retrieved_captions=false", "--report.resamples=100", "--trainer.threads=1"
FASTER = "--vse.epochs=12", "--vse.decay_epoch=10", "--vse.dim=64", "--vse.reranker.model=null", *QUICK


@pytest.mark.slow
def test_four_commands_lead_to_german_answers_by_a_trained_network(tmp_path: Path, capsys) -> None:
    captions = write_scenes(tmp_path / "mine", 180)
    others = write_scenes(tmp_path / "others", 120)
    trained_backbone(tmp_path / "vit", tmp_path / "others", others, steps=800)
    save_marian(tmp_path / "opus", sentences=[one.text for one in captions])
    with at(tmp_path):
        assert main(["init", "mine", "--backbone", "vit", "--translator", "opus"]) == 0
        assert main(["all", "./mine.yaml", *FASTER]) == 0
        assert main(["index", "./mine.yaml", *FASTER]) == 0
        capsys.readouterr()
        assert main(["search", "ein roter Ball liegt links", "--recipe", "./mine.yaml", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["language"] == "de"  # detected: the model reads German, by the translator's captions alone
    assert len(answer["hits"]) == 10
    jobs = tmp_path / "artifacts" / "jobs"
    (store,) = jobs.glob("corpus/*/regions")
    assert RegionStore(store).num_regions == 37
    assert np.isfinite(RegionStore(store).regions).all()
    (manifest,) = jobs.glob("vse-san-en-de-1/*/manifest.json")
    figures = json.loads(manifest.read_text())["metrics"]["test"]["en"]
    (captions_table,) = jobs.glob("corpus/*/captions.parquet")
    tested = {row["image_id"] for row in pq.read_table(captions_table).to_pylist() if row["split"] == "test"}
    assert figures["t2i_r5"] > 1.5 * 100 * 5 / len(tested)  # of them by chance
    (written,) = jobs.glob("synthetic-opus-en-de/*/captions.parquet")
    german = pq.read_table(written).to_pylist()
    assert {row["language"] for row in german} == {"de"}
    assert not tested & {row["image_id"] for row in german}


def test_who_has_the_built_in_extractor_is_told_what_to_do(tmp_path: Path, capsys) -> None:
    """By the report of photographs alone, and the command that it names works."""
    words = [one.text for one in write_scenes(tmp_path / "my mine", 24)]
    save("siglip2", tmp_path / "siglip2", sorted({word for text in words for word in text.lower().split()}))
    with at(tmp_path):
        assert main(["init", "my mine", "--backbone", "built-in", "--translator", "none"]) == 0
        capsys.readouterr()
        assert main(["report", "./my-mine.yaml"]) == 0
        (said,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("The built-in extractor")]
        assert said in (tmp_path / "artifacts" / "my-mine" / "report" / "report.md").read_text(encoding="utf-8")
        program, *command = shlex.split(said.split("`")[1])
        assert program == "bildwort"
        command[command.index("google/siglip2-base-patch16-224")] = "siglip2"
        assert main([*command, "--translator", "none"]) == 0
        better = load_recipe("./my-mine-dual-encoder.yaml")
        assert better.vse.model == "dual-encoder"
        assert on_regions(better, better.vse.only) == []
        assert on_regions(load_recipe("./my-mine.yaml", ["--regions.model=vit"], networks=False), ["en-human"]) == []
    assert on_regions(load_recipe("scenes"), ["none"]) == []
    (said,) = on_regions(
        load_recipe("multi30k-flickr8k", [f"--corpus.root={tmp_path}", "--corpus.regions=null"]), ["none"]
    )
    assert "init" not in said  # which reads no corpus of this form
    assert on_regions(load_recipe("multi30k-flickr8k", [f"--corpus.root={tmp_path}"]), ["none"]) == []


def test_four_commands_lead_to_german_answers_by_a_dual_encoder(tmp_path: Path, capsys) -> None:
    """Tiny networks with random weights: what is tested is the way."""
    words = [one.text for one in write_scenes(tmp_path / "mine", 24)]
    save("siglip2", tmp_path / "siglip2", sorted({word for text in words for word in text.lower().split()}))
    save_marian(tmp_path / "opus", sentences=words)
    with at(tmp_path):
        assert main(["init", "mine", "--backbone", "siglip2", "--translator", "opus"]) == 0
        taught = ["--vse.epochs=1", "--vse.decay_epoch=1", *QUICK]
        assert main(["all", "./mine.yaml", *taught]) == 0
        assert main(["index", "./mine.yaml", *taught]) == 0
        capsys.readouterr()
        assert main(["search", "ein roter ball", "--recipe", "./mine.yaml", "--language", "de", "--json"]) == 0
        (answer,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert answer["language"] == "de"
    assert len({hit["path"] for hit in answer["hits"]}) == 10
    jobs = tmp_path / "artifacts" / "jobs"
    for row in ("zero-shot", "en-de"):
        (manifest,) = jobs.glob(f"vse-dual-encoder-{row}-1/*/manifest.json")
        metrics = json.loads(manifest.read_text())["metrics"]
        assert 0 < metrics["test"]["en"]["mean_recall"] <= 100
        assert (metrics["steps_an_epoch"] > 0) == (row == "en-de")
    assert not list(jobs.glob("vse-*fine-tuned*"))
    (written,) = jobs.glob("synthetic-opus-en-de/*/captions.parquet")
    assert {row["language"] for row in pq.read_table(written).to_pylist()} == {"de"}


def test_the_command_of_the_report_names_captions_and_languages(tmp_path: Path, capsys) -> None:
    write_scenes(tmp_path / "mine", 24)
    (tmp_path / "mine" / "captions.tsv").rename(tmp_path / "elsewhere.tsv")
    options = ("--backbone", "built-in", "--translator", "none")
    with at(tmp_path):
        assert main(["init", "mine", "--captions", "elsewhere.tsv", "--languages", "en,de", *options]) == 0
        recipe = load_recipe("./mine.yaml")
        (said,) = on_regions(recipe, recipe.vse.only)
        _, *words = shlex.split(said.split("`")[1])
        assert words[:2] == ["init", str(tmp_path / "mine")]
        assert words[words.index("--captions") + 1] == str(tmp_path / "elsewhere.tsv")
        assert words[words.index("--languages") + 1] == "en,de"
        words[words.index("--backbone") + 1] = "built-in"
        assert main([*words, "--translator", "none"]) == 0


def test_pictures_that_change_after_the_training_are_indexed_by_the_command_that_the_error_names(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    mine = tmp_path / "mine"
    write_tsv(mine / "captions.tsv", captions := draw_pictures(mine, COUNT))
    with at(tmp_path):
        assert main(["init", "mine", "--backbone", "built-in", "--translator", "none"]) == 0
        few = ["./mine.yaml", "--vse.epochs=1", "--vse.warmup_epochs=0", "--vse.reranker.model=null", *QUICK]
        for stage in ("prepare", "vse", "index"):
            assert main([stage, *few]) == 0
        (mine / "1.png").unlink()
        draw_pictures(tmp_path / "more", COUNT + 1)
        (tmp_path / "more" / f"{COUNT}.png").rename(mine / "more.png")
        del captions["1.png"]
        write_tsv(mine / "captions.tsv", captions | {"more.png": "a new caption"})
        capsys.readouterr()
        assert main(["index", *few]) == 1
        said = capsys.readouterr().err
        assert "has not been trained with these data and settings" in said
        assert main(["index", *few, *shlex.split(said.rpartition("again with ")[2])]) == 0
        assert f"{COUNT} pictures (1 new, 1 gone, 0 left out)" in capsys.readouterr().out
        assert Gallery.open("artifacts/mine/gallery").own_captions("more.png") == {"en": ["a new caption"]}
