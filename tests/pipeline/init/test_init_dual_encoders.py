"""`bildwort init` offers a dual encoder first: which one, the recipe for it, and what is said where none can be had."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from data.errors import DataError
from pipeline.engine.workspace import Workspace
from pipeline.init import networks
from pipeline.recipes.loading import load_recipe
from pipeline.recipes.settings import Recipe
from tests.data.networks import make_network
from tests.modules.dual_networks import save
from tests.modules.translation_models import save_marian
from tests.pipeline.init.own_pictures import COUNT, draw_pictures, refused, run, write_tsv
from tests.pipeline.tiny import at


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    write_tsv(tmp_path / "mine" / "captions.tsv", draw_pictures(tmp_path / "mine", COUNT))
    return tmp_path / "mine"


def written(work: Path, mine: Path, *options: str) -> Recipe:
    """The recipe that `init` writes; it is not prepared."""
    assert run(work, "init", str(mine), *options, "--output", "made.yaml") == 0
    with at(work):
        return load_recipe("./made.yaml")


@pytest.mark.parametrize("kind", ["clip", "siglip2"])
def test_a_dual_encoder_is_a_recipe_without_regions_of_a_network(kind: str, tmp_path: Path, mine: Path, capsys) -> None:
    dual, opus = save(kind, tmp_path / "dual"), save_marian(tmp_path / "opus")
    recipe = written(tmp_path / "work", mine, "--backbone", str(dual), "--translator", str(opus))
    vse, mix = recipe.vse, ["en/human", "de/opus:en-de"]
    assert (vse.model, vse.pretrained, vse.loss) == ("dual-encoder", str(dual), None)
    assert list(vse.rows.items()) == [("zero-shot", []), ("en-de", mix), ("fine-tuned", mix)]
    assert vse.only == ["zero-shot", "en-de"]
    assert vse.of_row("zero-shot").epochs == 0
    assert vse.of_row("en-de").options == {"text": "full", "image": "frozen"}
    tuned = vse.of_row("fine-tuned")
    assert (tuned.options, tuned.interpolate) == ({"text": "full", "image": "full"}, [0, 0.25, 0.5, 0.75, 1])
    assert tuned.learning_rate == 1e-5
    assert vse.reranker == {"model": None}
    assert recipe.regions.model is None
    told = capsys.readouterr().out
    assert f"model     {dual}, a dual encoder: it was asked for; its vectors of pictures take up to 1 min" in told
    assert "translates, tests the network as it is, trains its text tower, tests it" in told
    assert "add fine-tuned to vse.only in ./made.yaml" in told
    assert "regions" not in told
    text = (tmp_path / "work" / "made.yaml").read_text()
    assert "SigLIP 2 Apache 2.0, OpenAI's CLIP MIT" in text
    assert "nllb-clip and jina-clip-v2 are non-commercial (CC BY-NC 4.0)" in text
    assert "cached_chunk" not in text  # batches are small


def test_people_s_captions_of_all_languages_are_read_where_there_is_no_translator(tmp_path: Path) -> None:
    names = draw_pictures(tmp_path / "mine", 5 * COUNT)
    german = "Der Hund Nummer {} steht auf der grünen Wiese und ist klein"
    lines = [f"{name}\ten\t{text}\n{name}\tde\t{german.format(name)}\n" for name, text in names.items()]
    (tmp_path / "mine" / "captions.tsv").write_text("".join(lines))
    dual = save("siglip", tmp_path / "dual")
    recipe = written(tmp_path / "work", tmp_path / "mine", "--backbone", str(dual))
    (row,) = {*recipe.vse.only} - {"zero-shot"}
    assert sorted(recipe.vse.rows[row]) == ["de/human", "en/human"]
    assert sorted(recipe.vse.select) == ["de", "en"]
    assert recipe.mmt.systems == recipe.augment.paths == []
    assert recipe.vse.of_row("fine-tuned").cached_chunk < recipe.vse.batch_size


def test_the_first_dual_encoder_of_the_cache_or_else_of_the_hub_is_taken(monkeypatch) -> None:
    siglip2, siglip, clip = networks.DUAL_ENCODERS.values()
    tried: list[tuple[str, str]] = []

    def readable(name: str, why: str, images: list) -> networks.Chosen:
        """The network of this name can be read."""
        tried.append((name, why))
        return networks.Chosen(name, why)

    def broken(name: str, why: str, images: list) -> networks.Chosen:
        """That of the first name cannot."""
        if name == siglip2:
            raise DataError("no tokenizer there")
        return readable(name, why, images)

    def chosen(read: Callable[..., networks.Chosen], cached: str, missing: str) -> str | None:
        """The name, with one network in the cache and one that the hub has not."""
        monkeypatch.setattr(networks, "_tried_dual_encoder", read)
        monkeypatch.setattr(networks, "_is_cached", lambda name: name == cached)
        monkeypatch.setattr(networks, "_unreachable", lambda name: "no such name" if name == missing else "")
        return networks.choose_dual_encoder(None, []).model

    assert [chosen(readable, clip, ""), chosen(readable, "", siglip2), chosen(broken, siglip2, "")] == [
        clip, siglip, siglip,
    ]  # fmt: skip
    assert tried[:2] == [
        (clip, "OpenAI's CLIP (MIT), trained on English alone, in this machine's cache of the hub"),
        (siglip, "SigLIP (Apache 2.0), from the hub"),
    ]
    monkeypatch.undo()
    nothing = networks.choose_dual_encoder(None, [])  # tests are offline
    assert nothing.model is None
    assert "HF_HUB_OFFLINE is set" in nothing.why


def test_without_a_dual_encoder_the_cost_and_the_way_to_one_are_said(tmp_path: Path, mine: Path, capsys) -> None:
    recipe = written(tmp_path / "work", mine, "--translator", "none")  # tests are offline
    assert (recipe.vse.model, recipe.regions.model) == ("san", None)
    told, text = capsys.readouterr().out, (tmp_path / "work" / "made.yaml").read_text()
    assert "model     san, which reads regions: no dual encoder can be had from this machine's cache of the hub" in told
    assert "finds regions, trains, tests" in told
    for said in (told, text.replace("\n# ", " ")):
        assert "the first answer for photographs is seldom right; a dual encoder finds most without training" in said
        assert "`hf download google/siglip2-base-patch16-224 --local-dir FOLDER`, then --backbone FOLDER" in said


def test_networks_that_find_neither_pictures_nor_regions_are_told_in_one_line(
    tmp_path: Path, mine: Path, capsys
) -> None:
    def line(folder: Path) -> str:
        """What is said of a network."""
        said = refused(tmp_path / "work", capsys, str(mine), "--backbone", str(folder), "--translator", "none")
        assert said.startswith(f"error: --backbone '{folder}': ")
        return said

    for kind in ("text", "swin"):
        said = line(make_network(kind, tmp_path / kind))
        assert {"text": "no vision model of transformers there", "swin": "expected one like CLIP"}[kind] in said
        assert "or take a dual encoder (SigLIP 2, CLIP …): where there is internet, `hf download" in said
    dual = save("siglip2", tmp_path / "dual")
    for kind, gone in (("words", "tokenizer*"), ("pictures", "preprocessor_config.json"), ("weights", "*.safetensors")):
        shutil.copytree(dual, tmp_path / kind)
        for path in (tmp_path / kind).glob(gone):
            path.unlink()
        part = {"words": "tokenizer", "pictures": "image processor", "weights": "weights"}[kind]
        assert f"a dual encoder without its {part} (expected " in line(tmp_path / kind)
    whole = (dual / "model.safetensors").read_bytes()
    (dual / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    assert "its weights are damaged or cut short" in line(dual)
    (tmp_path / "words" / "config.json").write_text("{")
    assert "no network of transformers there" in line(tmp_path / "words")
    assert not Workspace(tmp_path / "work" / "artifacts").root.exists()
