"""`bildwort init`: a folder in each form becomes a recipe that loads and whose corpus is prepared; bad input is one
line. The whole way to German search answers is in `test_init_to_search`."""

import json
import re
import shutil
from pathlib import Path

import pytest
from huggingface_hub import HfApi

from data.errors import DataError
from pipeline.init import networks
from tests.data.networks import make_network
from tests.modules.translation_models import save_marian, save_nllb
from tests.pipeline.init.own_pictures import (
    COUNT,
    captions_of,
    draw_pictures,
    made,
    refused,
    run,
    write_coco,
    write_karpathy_form,
    write_tsv,
)  # fmt: skip


@pytest.fixture(scope="module")
def dino(tmp_path_factory) -> Path:
    return make_network("dino", tmp_path_factory.mktemp("networks") / "dino")


def test_a_tsv_without_languages(tmp_path: Path, dino: Path, capsys) -> None:
    names = draw_pictures(tmp_path / "mine" / "jpegs", COUNT)
    write_tsv(tmp_path / "mine" / "texts.tsv", names)
    opus = save_marian(tmp_path / "opus")
    recipe = made(tmp_path / "work", str(tmp_path / "mine"), "--backbone", str(dino), "--translator", str(opus))
    options = recipe.corpus.options
    assert (options.pictures, options.captions, options.languages) == ("jpegs", "texts.tsv", ["en"])
    assert (recipe.regions.model, recipe.regions.regions) == (str(dino), 17)
    assert recipe.vse.only == ["en-de"]
    assert recipe.vse.rows["en-de"] == ["en/human", "de/opus:en-de"]
    assert recipe.mmt.pretrained["opus"].model == str(opus)
    assert captions_of(tmp_path / "work") | {"warnings": 0} == {
        "captions": COUNT, "pairs": 0, "images": COUNT, "regions": [17, 32], "warnings": 0,
    }  # fmt: skip
    told = capsys.readouterr().out
    assert "30 pictures with captions, 41×30 pixels (40×30 to 42×30)" in told
    assert "30 English (detected), 1 a picture" in told
    assert f"by {dino}: it was asked for" in told
    assert f"model     san, which reads regions: {dino} is no dual encoder. With these models the first answer" in told
    assert "`hf download google/siglip2-base-patch16-224 --local-dir FOLDER`, then --backbone FOLDER" in told
    assert "all ./made.yaml" in told
    text = (tmp_path / "work" / "made.yaml").read_text()
    assert "# drawn from the pictures' names: 2" in text
    assert "# With these models the first answer for photographs is seldom right; a dual encoder finds most" in text


def test_a_tsv_in_two_languages_with_splits_needs_no_translator(tmp_path: Path, capsys) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    lines = []
    for place, (name, text) in enumerate(names.items()):
        split = ["val", "test", "train"][min(2, place % 10)]
        german = f"Der Hund Nummer {place} steht auf der grünen Wiese und ist klein"
        lines += [f"{name}\t{text}\t{split}", f"{name}\t{german}\t{split}"]
    (tmp_path / "mine" / "captions.tsv").write_text("\n".join(lines))
    recipe = made(tmp_path / "work", str(tmp_path / "mine"), "--backbone", "built-in")
    assert sorted(recipe.corpus.options.languages) == ["de", "en"]
    assert sorted(recipe.vse.test) == ["de", "en"]
    assert recipe.mmt.systems == recipe.augment.paths == []
    assert recipe.regions.model is None
    assert "by the translator" not in (tmp_path / "work" / "made.yaml").read_text()
    assert captions_of(tmp_path / "work")["captions"] == 2 * COUNT
    other = tmp_path / "other"
    line = refused(other, capsys, str(tmp_path / "mine"), "--to", "de")
    assert re.search("--to: captions are in (en and de|de and en) already", line)
    assert "captions are in" in refused(other, capsys, str(tmp_path / "mine"), "--to", "German")
    assert "'Martian' is no language" in refused(other, capsys, str(tmp_path / "mine"), "--to", "Martian")
    line = refused(other, capsys, str(tmp_path / "mine"), "--translator", "some/name")
    assert "name another language by --to" in line


def test_captions_of_pictures_that_are_not_there_are_left_out_where_it_is_asked_for(tmp_path: Path, capsys) -> None:
    mine, options = tmp_path / "mine", ("--backbone", "built-in", "--translator", "none")
    names = draw_pictures(mine, COUNT)
    write_tsv(mine / "captions.tsv", names | {"gone.png": "The dog is away", "lost.png": "A cat is away"})
    (mine / "3.png").write_bytes(b"cut off")
    assert run(tmp_path, "init", str(mine), *options) == 1
    assert capsys.readouterr().err.count("--skip-missing") == 2
    made(tmp_path / "work", str(mine), *options, "--skip-missing")
    told = capsys.readouterr().out.replace(f"{mine}/", "")
    assert "left out  2 lines whose picture is not there: captions.tsv:31, captions.tsv:32" in told
    assert "left out  1 missing or unreadable picture: 3.png" in told
    assert captions_of(tmp_path / "work")["captions"] == COUNT - 1
    (mine / "captions.tsv").unlink()
    write_coco(mine / "captions.json", names | {"gone.png": "The dog is away"})
    made(tmp_path / "coco", str(mine), *options, "--skip-missing")
    assert captions_of(tmp_path / "coco")["captions"] == 2 * (COUNT - 1)


@pytest.mark.slow
def test_json_of_coco_s_and_of_karpathy_s_form(tmp_path: Path, dino: Path, capsys) -> None:
    names = draw_pictures(tmp_path / "mine" / "images", COUNT)
    write_coco(tmp_path / "mine" / "captions.json", names)
    (tmp_path / "mine" / "instances.json").write_text('{"images": [], "annotations": [{"bbox": []}]}')
    options = "--backbone", str(dino), "--translator", "none"
    coco = made(tmp_path / "coco", str(tmp_path / "mine"), *options)
    assert (coco.corpus.name, coco.corpus.options.drawn, coco.corpus.options.pictures) == ("karpathy", 3, "images")
    assert captions_of(tmp_path / "coco")["captions"] == 2 * COUNT
    assert "24 train, 3 val, 3 test pictures, drawn" in capsys.readouterr().out
    (tmp_path / "mine" / "captions.json").unlink()
    write_karpathy_form(tmp_path / "mine" / "dataset.json", names)
    renamed = (tmp_path / "mine" / "dataset.json").read_text().replace('"val"', '"validation"')
    (tmp_path / "mine" / "dataset.json").write_text(renamed)
    karpathy = made(tmp_path / "karpathy", str(tmp_path / "mine"), *options)
    assert (karpathy.corpus.options.drawn, karpathy.corpus.options.language) == (0, "en")
    assert captions_of(tmp_path / "karpathy")["captions"] == COUNT
    assert "24 train, 3 val, 3 test pictures, as given" in capsys.readouterr().out


def test_a_coco_file_of_many_more_pictures_is_drawn_from_those_with_captions(tmp_path: Path, dino: Path) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    write_coco(tmp_path / "mine" / "captions.json", names)
    content = json.loads((tmp_path / "mine" / "captions.json").read_text())
    content["images"] += [{"id": 1000 + number, "file_name": f"more/{number}.png"} for number in range(300)]
    (tmp_path / "mine" / "captions.json").write_text(json.dumps(content))
    assert run(tmp_path / "work", "init", str(tmp_path / "mine"), "--backbone", str(dino), "--translator", "none") == 0
    assert (
        "drawn: 3   # drawn from the pictures' names: 24 train, 3 val, 3 test" in (tmp_path / "mine.yaml").read_text()
    )


def test_norwegian_is_a_language_though_yaml_reads_no_as_false(tmp_path: Path) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    (tmp_path / "mine" / "captions.tsv").write_text("".join(f"{name}\tno\tEn hund {name}\n" for name in names))
    recipe = made(tmp_path / "work", str(tmp_path / "mine"), "--backbone", "built-in", "--translator", "none")
    (row,) = recipe.vse.only
    assert (recipe.vse.rows, recipe.vse.reranker["row"]) == ({row: ["no/human"]}, row)
    assert recipe.vse.test == recipe.vse.select == ["no"]


def test_the_backbone_is_one_of_the_cache_or_of_the_hub_and_init_says_which(monkeypatch) -> None:
    tried: list[tuple[str, str]] = []
    monkeypatch.setattr(networks, "_tried", lambda name, why, pictures: tried.append((name, why)))
    monkeypatch.setattr(networks, "_is_cached", lambda name: name == networks.BACKBONES["CLIP"])
    networks.choose_backbone(None, [], 9)
    monkeypatch.setattr(networks, "_is_cached", lambda name: False)
    monkeypatch.setattr(networks, "_unreachable", lambda name: "" if "dinov2" in name else "no such name")
    networks.choose_backbone(None, [], 9)
    assert tried == [
        (networks.BACKBONES["CLIP"], "CLIP, in this machine's cache of the hub"),
        (networks.BACKBONES["DINOv2"], "DINOv2, from the hub"),
    ]
    monkeypatch.setattr(networks, "_is_cached", lambda name: name == networks.BACKBONES["SigLIP"])

    def unreadable(name: str, why: str, images: list) -> str:
        """The network of the cache is not whole."""
        if name == networks.BACKBONES["SigLIP"]:
            raise DataError("its weights lack a matrix")
        return why

    monkeypatch.setattr(networks, "_tried", unreadable)
    assert networks.choose_backbone(None, [], 9) == "DINOv2, from the hub"
    monkeypatch.setattr(networks, "_unreachable", lambda name: "no network")
    assert "(its weights lack a matrix)" in networks.choose_backbone(None, [], 9).why
    monkeypatch.undo()
    nothing = networks.choose_backbone(None, [], 9)  # tests are offline
    assert (nothing.model, nothing.regions) == (None, 9)
    assert "HF_HUB_OFFLINE is set" in nothing.why
    assert "an even background" in nothing.why
    assert "asked for" in networks.choose_backbone("built-in", [], 9).why


def test_weights_in_safetensors_are_found_in_the_pull_request_of_the_hub_s_converter(monkeypatch) -> None:
    class PullRequest:
        num, status = 7, "open"

    monkeypatch.setattr(HfApi, "list_repo_files", lambda self, name: ["pytorch_model.bin"])
    monkeypatch.setattr(HfApi, "get_repo_discussions", lambda self, name, author, discussion_type: iter([PullRequest]))
    assert networks._with_safetensors("Helsinki-NLP/opus-mt-en-de") == "refs/pr/7"
    monkeypatch.setattr(HfApi, "list_repo_files", lambda self, name: ["model.safetensors"])
    assert networks._with_safetensors("Helsinki-NLP/opus-mt-en-de") is None


def test_a_translator_of_a_pull_request_is_found_in_the_cache_and_by_its_name(tmp_path: Path, monkeypatch) -> None:
    name, commit, loaded = "Helsinki-NLP/opus-mt-en-de", "a" * 40, []
    repository = tmp_path / "models--Helsinki-NLP--opus-mt-en-de"
    for file in (repository / "snapshots" / commit / "model.safetensors", repository / "refs" / "refs" / "pr" / "7"):
        file.parent.mkdir(parents=True)
        file.write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(networks, "_unreachable", lambda name: "no network")
    monkeypatch.setattr(networks, "load_pretrained", loaded.append)
    for wanted in (None, name):
        chosen = networks.choose_translator(wanted, "en-de")
        assert (chosen.model, chosen.revision) == (name, "refs/pr/7")
    assert {about["revision"] for about in loaded} == {"refs/pr/7"}


def test_what_is_not_there_is_told_in_one_line(tmp_path: Path, dino: Path, capsys) -> None:
    mine, work = tmp_path / "mine", tmp_path / "work"
    assert "no such folder" in refused(work, capsys, str(mine))
    mine.mkdir()
    assert "no pictures in it; expected files like .bmp" in refused(work, capsys, str(mine))
    names = draw_pictures(mine, COUNT)
    line = refused(work, capsys, str(mine))
    assert "no captions; write a file captions.tsv into it: `picture TAB caption`" in line
    assert "0.png<TAB>A dog" in line
    (mine / "captions.json").write_text('{"images": [\n{"id": 1,')
    assert "captions.json:2: not whole JSON" in refused(work, capsys, str(mine))
    write_coco(mine / "captions.json", names | {"gone.png": "The dog is away"})
    line = refused(work, capsys, str(mine))
    assert "annotations[60].caption: no picture 'gone' in" in line
    write_tsv(mine / "captions.tsv", names | {"gone.png": "The dog is away"})
    line = refused(work, capsys, str(mine))
    assert "several files have captions: captions.json, captions.tsv; choose one by --captions" in line
    line = refused(work, capsys, str(mine), "--captions", str(mine / "captions.tsv"))
    assert "captions.tsv:31: no picture 'gone.png'" in line
    (mine / "captions.json").unlink()
    write_tsv(mine / "captions.tsv", dict(list(names.items())[:9]))
    assert "9 pictures with captions; expected 10 or more" in refused(work, capsys, str(mine))
    write_tsv(mine / "captions.tsv", names, "train")
    assert "no picture is for validation; give some the split val" in refused(work, capsys, str(mine))
    (mine / "captions.tsv").unlink()
    images = [{"filename": name, "split": "val" if place < 8 else "train", "sentences": [{"raw": text}]}
              for place, (name, text) in enumerate(names.items())]  # fmt: skip
    (mine / "captions.json").write_text(json.dumps({"images": images}))
    assert "no picture is for the test; give some the split test" in refused(work, capsys, str(mine))
    (mine / "captions.json").unlink()
    write_tsv(mine / "captions.tsv", names)
    (mine / "notes.txt").write_text("nothing of pictures\n")
    line = refused(work, capsys, str(mine), "--captions", str(mine / "notes.txt"))
    assert "notes.txt: its lines have one column, without a TAB; expected `picture TAB caption`" in line
    (mine / "captions.tsv").write_text("".join(f"{name}\tin English\t{text}\n" for name, text in names.items()))
    line = refused(work, capsys, str(mine))
    assert (
        "captions.tsv: more than two columns, but the second has no codes of languages such as en (first 'in English')"
        in line
    )
    (mine / "captions.tsv").write_text("".join(f"a\tb\t{name}\n" for name in names))
    line = refused(work, capsys, str(mine))
    assert "no captions (looked at captions.tsv: its pictures stand in column 3 of 3, and no header names the" in line
    assert "notes.txt: its lines have one column" in line
    (mine / "captions.tsv").write_text("".join(f"{name}\ta dog\n" for name in ("one", "two")))
    assert "captions.tsv: its columns name no pictures of the folder (its first line begins with 'one')" in refused(
        work, capsys, str(mine)
    )
    (mine / "captions.tsv").unlink()
    (mine / "captions.json").write_text(json.dumps({"images": [{"filename": name, "sentences": 5} for name in names]}))
    assert "captions.json: images[0]: no text 'split'" in refused(work, capsys, str(mine))


def test_networks_that_do_not_fit_are_told_in_one_line(tmp_path: Path, dino: Path, capsys) -> None:
    mine, work = tmp_path / "mine", tmp_path / "work"
    write_tsv(mine / "captions.tsv", draw_pictures(mine, COUNT))
    blind = make_network("dino", tmp_path / "blind")
    (blind / "preprocessor_config.json").unlink()
    line = refused(work, capsys, str(mine), "--backbone", str(blind))
    assert "--backbone" in line
    assert "it has no image processor (preprocessor_config.json)" in line
    assert "--backbone: no folder ./away" in refused(work, capsys, str(mine), "--backbone", "./away")
    line = refused(work, capsys, str(mine), "--backbone", "nobody/nothing")
    assert "`hf download NAME --local-dir FOLDER`" in line
    swin = make_network("swin", tmp_path / "swin")
    assert "gives no state for each" in refused(work, capsys, str(mine), "--backbone", str(swin))
    of = ["--backbone", str(dino)]
    assert "--translator 'nobody/nothing': no translator" in refused(
        work, capsys, str(mine), *of, "--translator", "nobody/nothing"
    )
    assert "--translator: no folder ./away" in refused(work, capsys, str(mine), *of, "--translator", "./away")
    opus = str(save_marian(tmp_path / "opus", pair="fr-de"))
    assert "translates fr-de, not en-de" in refused(work, capsys, str(mine), *of, "--translator", opus)
    nllb = str(save_nllb(tmp_path / "nllb"))
    assert "does not know the language 'xx'" in refused(
        work, capsys, str(mine), *of, "--translator", nllb, "--to", "xx"
    )


def test_places_that_do_not_fit_are_told_in_one_line(tmp_path: Path, capsys) -> None:
    mine, work = tmp_path / "mine", tmp_path / "work"
    write_tsv(mine / "captions.tsv", draw_pictures(mine, COUNT))
    work.mkdir()
    assert "init: no folder is named; expected one with pictures and captions" in refused(work, capsys, "")
    assert "--captions: hub:a/b brings its captions" in refused(work, capsys, "hub:a/b", "--captions", "some.tsv")
    line = refused(work, capsys, "hub:nobody/nothing")
    assert "hub:nobody/nothing: no data set that `datasets` can read" in line
    assert "without internet" in line
    assert "own is the name of a recipe" in refused(work, capsys, str(mine), "--output", "own.yaml")
    assert "a folder, or a recipe that ends in .yaml" in refused(work, capsys, str(mine), "--output", "own.txt")
    assert "takes no settings" in refused(work, capsys, str(mine), "--vse.epochs=3")
    assert "among the pictures; start it from another folder" in refused(mine, capsys, str(mine))
    options = str(mine), "--backbone", "built-in", "--output", "once.yaml"
    assert run(work, "init", *options) == 0
    assert run(work, "init", *options) == 1
    assert "once.yaml: exists; choose another file, or replace it with --force" in capsys.readouterr().err
    assert run(work, "init", *options, "--force") == 0


@pytest.mark.parametrize("name", ["x\nreport: {resamples: 4321} #", "x\u2028report: {resamples: 4321} #", "x\ry"])
def test_the_name_of_a_folder_writes_no_setting(name: str, tmp_path: Path, capsys) -> None:
    write_tsv(tmp_path / name / "captions.tsv", draw_pictures(tmp_path / name, COUNT))
    line = refused(tmp_path, capsys, name, "--backbone", "built-in", "--translator", "none")
    assert "its name has control characters; rename the folder" in line
    (tmp_path / name).rename(tmp_path / "x")
    line = refused(tmp_path, capsys, "x", "--backbone", name, "--translator", "none")
    assert "--backbone" in line


def test_languages_that_cannot_be_told_are_said_and_can_be_set(tmp_path: Path, capsys) -> None:
    options = "--backbone", "built-in", "--translator", "none"
    names = dict.fromkeys(draw_pictures(tmp_path / "mine", COUNT), "a photo")
    write_tsv(tmp_path / "mine" / "captions.tsv", names)
    assert run(tmp_path, "init", "mine", *options) == 0
    assert "English (could not be told, taken as English; --languages sets it)" in capsys.readouterr().out
    assert 'languages: ["en"]   # could not be told' in (tmp_path / "mine.yaml").read_text()
    assert run(tmp_path, "init", "mine", *options, "--languages", "cs", "--force") == 0
    assert "30 Czech, 1 a picture" in capsys.readouterr().out
    for wrong in ("Martian", "xx"):
        assert run(tmp_path, "init", "mine", *options, "--languages", wrong, "--force") == 1
        assert re.search(f"--languages: {wrong!r}.* expected (a code|codes) like en or de", capsys.readouterr().err)
    for written in ("ces", "Czech", "cs-CZ"):  # a corpus calls it by two letters
        assert run(tmp_path, "init", "mine", *options, "--languages", written, "--force") == 0
        assert 'languages: ["cs"]' in (tmp_path / "mine.yaml").read_text()
    for rare in ("bo", "tlh"):
        assert run(tmp_path, "init", "mine", *options, "--languages", rare, "--force") == 0


def test_copies_of_a_picture_in_two_splits_are_told_before_prepare(tmp_path: Path, capsys) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    shutil.copy(tmp_path / "mine" / "0.png", tmp_path / "mine" / "29.png")
    splits = ["train"] * 20 + ["val"] * 5 + ["test"] * 5
    lines = (f"{name}\t{text}\t{split}\n" for (name, text), split in zip(names.items(), splits, strict=True))
    (tmp_path / "mine" / "captions.tsv").write_text("".join(lines))
    told = refused(tmp_path, capsys, "mine", "--backbone", "built-in", "--translator", "none")
    assert "one picture in two splits (1×: 0.png = 29.png); correct the data first" in told


def test_folders_called_as_splits_are_warned_of_where_splits_are_drawn(tmp_path: Path, capsys) -> None:
    options = ["init", "mine", "--backbone", "built-in", "--translator", "none", "--force", "--output", "mine.yaml"]
    told, lines = {}, list[str]()
    for folder in ("train", "Validation", "other"):
        names = draw_pictures(tmp_path / "mine" / folder, COUNT)
        lines += [f"{folder}/{name}\t{folder} {text}\n" for name, text in names.items()]
        (tmp_path / "mine" / "captions.tsv").write_text("".join(lines))
        capsys.readouterr()
        assert run(tmp_path, *options) == 0
        told[folder] = "the folders Validation, train are not read as splits" in capsys.readouterr().out
    assert told == {"train": False, "Validation": True, "other": True}
