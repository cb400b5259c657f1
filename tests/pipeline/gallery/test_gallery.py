"""A gallery that is searched: from Python and the shell, by words and pictures, and what is refused."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from data.pictures.regions import RegionStore
from data.text.reading import Words, reading_of
from pipeline.corpus.prepare import pictures_of
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.hits import Found, Hit
from pipeline.gallery.indexing import update_gallery
from pipeline.gallery.picture_sources import PictureFolder, StoredRegions
from pipeline.gallery.search_commands import contact_sheet
from tests.pipeline.drawn import names
from tests.pipeline.tiny import Tiny


def test_a_search_is_the_model_s_own_order(used: Tiny, exported: ExportedModel) -> None:
    gallery = Gallery.open(used.workspace.root / "tiny" / "gallery", exported)
    query = "a small red bat on the left"
    hits = gallery.search(query, top=len(gallery))
    vectors = gallery._parts.take([row["digest"] for row in gallery.rows()], "vectors")
    scores = torch.from_numpy(vectors) @ exported.encode_captions([query], "en").single()[0]
    assert [hit.score for hit in hits] == pytest.approx(scores.sort(descending=True)[0].tolist(), abs=1e-5)
    found = {hit.name: hit.score for hit in hits}
    assert found == pytest.approx(
        {row["name"]: float(s) for row, s in zip(gallery.rows(), scores, strict=True)}, abs=1e-5
    )
    assert names(gallery.search(query, 3)) == names(hits)[:3]
    assert hits[0].path is not None
    assert hits[0].path.is_file()
    captions = gallery.describe(hits[0].path)
    assert captions.keys() == {"en"}
    assert len(captions["en"]) == 5
    assert captions["en"][0].score >= captions["en"][4].score


def test_the_shell_prints_names_json_and_a_sheet(used: Tiny, tmp_path: Path, capsys) -> None:
    capsys.readouterr()
    sheet, queries = tmp_path / "sheet.html", tmp_path / "queries.jsonl"
    assert used.main("search", "a red bat", "--top", "3", "--sheet", str(sheet)) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 3
    assert f"next: `python3 -m webbrowser file://{sheet}`" in said.err
    assert sheet.read_text().count("data:image") == 3
    queries.write_text('{"query": "a red bat"}\n{"query": "a blue ball", "top": 1, "language": "en"}\n')
    assert used.main("search", "--queries", str(queries), "--json", "--top", "2") == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["query"], first["language"], len(first["hits"]), len(second["hits"])) == ("a red bat", "en", 2, 1)
    assert used.main("describe", first["hits"][0]["path"], "--top", "2") == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert used.main("describe", first["hits"][0]["name"], "--json") == 0
    assert json.loads(capsys.readouterr().out)["language"] == "en"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("search",), "give a query (`bildwort search 'a dog'`) or"), (("search", "  "), "the query is empty"),
        (("search", "--vse.dim=16", "  "), "the query is empty"), (("search", "--vse.dim=16"), "give a query"),
        (("search", "ein Hund", "--language", "de"), "was trained on en; choose"),
        (("search", "a", "--top", "0"), "0 pictures are wanted; expected 1 or more"),
        (("search", "a", "--gallery", "gone"), "gone: no gallery here; run `bildwort index`"),
        (("index", "--model", "gone"), "no exported model here"), (("search", "caf\udce9"), "not UTF-8; write it"),
        (("search", "a", "--sheet", "."), "expected a file"), (("search", "a", "--sheet", "x" * 300), "File name too"),
        (("index", "--gallery", "tiny.yaml/x"), "cannot be made"), (("index", "--gallery", "g\udce9"), "not UTF-8"),
        (("export", "--output", "/"), "a folder of its own"),
        (("describe",), "give a picture"), (("describe", "gone.jpg"), "no such file, and no picture of"),
        (("index", "--pictures", "gone"), "no such folder"), (("vse", "a dog"), "two recipes are named, 'a dog'"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(used: Tiny, arguments: tuple[str, ...], said: str, capsys) -> None:
    capsys.readouterr()
    assert used.main(*arguments) == 1
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("name", "lines", "said"),
    [
        ("some.txt", "a bat\n \n", "some.txt:2: the query is empty"),
        ("some.jsonl", '{"query": " "}', "some.jsonl:1: query is empty"),
        ("some.jsonl", '{"query": "a", "top": 0}', "some.jsonl:1: top is 0"),
        ("some.jsonl", '{"query": "a", "top": true}', "some.jsonl:1: query is a text, top a whole number"),
        ("some.jsonl", '{"query": "a", "language": 5}', "some.jsonl:1: language is a text"),
        ("some.jsonl", '{"query": "a"}\n{"query": "a", "language": "xx"}', "some.jsonl:2: language 'xx': the model"),
        ("some.jsonl", "[" * 100_000, "some.jsonl:1:"),
        ("some.jsonl", '{"query": "a \\ud800 bat"}', "not UTF-8; convert it"),
    ],
)
def test_a_file_of_queries_that_does_not_fit_is_one_line(
    used: Tiny, tmp_path: Path, name: str, lines: str, said: str, capsys
) -> None:
    (tmp_path / name).write_text(lines)
    capsys.readouterr()
    assert used.main("search", "--queries", str(tmp_path / name)) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert said in " ".join(err.split())


def test_queries_end_where_their_lines_do(used: Tiny, tmp_path: Path, capsys) -> None:
    (tmp_path / "some.txt").write_bytes(b"a red bat\r\n")
    capsys.readouterr()
    assert used.main("search", "--queries", str(tmp_path / "some.txt"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["query"] == "a red bat"


def test_a_damaged_copy_of_the_model_is_mended_by_the_command_that_is_advised(
    exported: ExportedModel, own: Path, tmp_path: Path
) -> None:
    gallery = tmp_path / "gallery"
    update_gallery(gallery, exported, PictureFolder(own), {"en": ["a bat"]})
    (words,) = (gallery / "models").glob("*/words.json")
    words.write_text(words.read_text() + " ")
    with pytest.raises(RecipeError, match=r"words\.json"):
        Gallery.open(gallery)
    update_gallery(gallery, exported, PictureFolder(own))
    assert len(Gallery.open(gallery).search("a bat")) == 6


def test_another_folder_of_the_same_names_sizes_and_dates_is_read_anew(exported: ExportedModel, tmp_path: Path) -> None:
    for name, colour in (("one", "red"), ("two", "blue")):
        (tmp_path / name).mkdir()
        Image.new("RGB", (60, 40), colour).save(tmp_path / name / "a.bmp")
        os.utime(tmp_path / name / "a.bmp", (0, 0))
        update = update_gallery(tmp_path / "gallery", exported, PictureFolder(tmp_path / name), {})
        assert update.computed == 1


@pytest.mark.parametrize("query", ["a " * 50_000, "🐕🐕🐕", "كلب أحمر", "[bold]x[/]", "\x1b[31m<b>"])
def test_odd_queries_find_something(used: Tiny, exported: ExportedModel, query: str) -> None:
    assert len(Gallery.open(used.workspace.root / "tiny" / "gallery", exported).search(query, 4)) == 4


def test_markup_in_a_query_or_a_name_stays_text() -> None:
    query, hit = "<script>alert(1)</script>", Hit('"><img src=x onerror=alert(2)>.png', 0.5)
    reading = reading_of(query, Words(1, [query]), ["en"], "en")
    page = contact_sheet([(query, Found([hit], reading))])
    assert "1 of 1 words unknown: &lt;script" in page
    assert "<script>" not in page
    assert "<img src=x" not in page


def test_a_gallery_of_another_model_or_none_is_refused(exported: ExportedModel, own: Path, tmp_path: Path) -> None:
    gallery = tmp_path / "gallery"
    update_gallery(gallery, exported, PictureFolder(own), {})
    about = json.loads((gallery / "gallery.json").read_text())
    (gallery / "gallery.json").write_text(json.dumps(about | {"made_of": "other"}))
    with pytest.raises(RecipeError, match="made by another model"):
        Gallery.open(gallery, exported)
    (gallery / "gallery.json").write_text("{")
    with pytest.raises(RecipeError, match="not readable"):
        Gallery.open(gallery, exported)
    with pytest.raises(RecipeError, match="holds something else"):
        update_gallery(own, exported, PictureFolder(own), {})
    (gallery / "gallery.json").write_text(json.dumps(about))
    (gallery / "generations" / "1" / "pictures" / "0" / "index.faiss").write_bytes(b"x")
    with pytest.raises(RecipeError, match="build it again"):
        Gallery.open(gallery, exported)


def test_a_better_model_does_not_disturb_the_old_gallery(used: Tiny, tmp_path: Path) -> None:
    """A gallery holds its model: what is exported after it does not matter until it is indexed anew."""
    copy = Tiny(tmp_path / "copy")
    shutil.copytree(used.workspace.root, copy.workspace.root, dirs_exist_ok=True)
    gallery = copy.workspace.root / "tiny" / "gallery"
    before = names(Gallery.open(gallery).search("a red bat"))
    better = ("--vse.seeds=[2]", "--vse.only=[human]")
    assert copy.main("vse", *better) == 0
    assert copy.main("export", *better) == 0
    assert names(Gallery.open(gallery).search("a red bat")) == before
    old = Gallery.open(gallery).exported.fingerprint
    assert copy.main("index", *better) == 0
    assert Gallery.open(gallery).exported.fingerprint != old


def test_a_search_deletes_nothing(exported: ExportedModel, own: Path, tmp_path: Path) -> None:
    gallery = tmp_path / "gallery"
    update_gallery(gallery, exported, PictureFolder(own), {})
    (part,) = (gallery / "parts").glob("*/pictures/*.safetensors")
    part.write_bytes(b"damaged")
    with pytest.raises(RecipeError, match="open it again"):
        Gallery.open(gallery, exported).describe_known("1.png")
    assert part.exists()


def test_models_of_other_regions_are_refused(used: Tiny, exported: ExportedModel, own: Path, tmp_path: Path) -> None:
    assert exported.standard is not None
    other = replace(exported, standard=(exported.standard[0] + 0.5, exported.standard[1]), reads="other")
    update_gallery(tmp_path / "gallery", exported, PictureFolder(own), {})
    with pytest.raises(RecipeError, match="it reads other regions than"):
        Gallery.open(tmp_path / "gallery", exported).search("a bat", reranker=other)
    corpus = used.job("corpus")
    stored = StoredRegions(RegionStore(corpus / "regions"), pictures_of(corpus))
    with pytest.raises(RecipeError, match="its regions are not made as those"):
        update_gallery(tmp_path / "stored", other, stored, {})


def test_a_name_is_known_by_any_accents_without_its_ending_or_folder(exported: ExportedModel, tmp_path: Path) -> None:
    (tmp_path / "pictures" / "sub").mkdir(parents=True)
    for name in ("o\u0308.png", "e.png", "e.jpg", "sub/f.png", "sub/e.png"):
        Image.new("RGB", (60, 40), "red").save(tmp_path / "pictures" / name)
    update_gallery(tmp_path / "gallery", exported, PictureFolder(tmp_path / "pictures"), {})
    opened = Gallery.open(tmp_path / "gallery", exported)
    assert {opened.place_of(name) for name in ("o\u0308.png", "\u00f6.png", "o\u0308", "\u00f6")} == {4}
    assert opened.rows([opened.place_of("f.png"), opened.place_of("e.png")])[0]["name"] == "sub/f.png"
    assert [opened.place_of(name) for name in ("o.png", "e", "", "b/f.png")] == [None] * 4


def test_names_do_nothing_to_the_terminal(used: Tiny, own: Path, tmp_path: Path, capsys) -> None:
    (own / "[bold]x\u200d\u202fy.png").write_bytes((own / "1.png").read_bytes())
    (own / "a[b].png").write_text("no picture")
    (own / "c\x1b[31m\u202e.png").write_bytes((own / "1.png").read_bytes())
    place = str(tmp_path / "my [old] gallery")
    capsys.readouterr()
    assert used.main("index", "--pictures", str(own), "--gallery", place) == 0
    printed = capsys.readouterr().out
    assert "a[b].png: not a readable picture" in printed
    assert "c\ufffd[31m\ufffd.png: its name has control characters" in printed
    assert "my [old] gallery: 7 pictures" in printed
    assert used.main("search", "a bat", "--gallery", place, "--top", "9") == 0
    printed = capsys.readouterr().out
    assert "[bold]x\u200d\u202fy.png" in printed


def test_a_model_of_sets_orders_the_first_and_indexes_nothing(used: Tiny, tmp_path: Path) -> None:
    scan = Tiny(tmp_path / "scan")
    shutil.copytree(used.workspace.root / "jobs", scan.workspace.root / "jobs")
    options = ("--vse.model=scan-t2i-avg", "--vse.only=[human]", "--vse.epochs=1", "--vse.decay_epoch=1")
    assert scan.main("vse", *options) == 0
    assert scan.main("export", "--output", str(tmp_path / "second"), *options) == 0
    second = ExportedModel.load(tmp_path / "second")
    first = ExportedModel.load(used.workspace.root / "tiny" / "model")
    gallery = Gallery.open(used.workspace.root / "tiny" / "gallery", first)
    listed = names(gallery.search("a red bat", 8))
    hits = gallery.search("a red bat", 3, reranker=second, first=8)
    store_rows = {row["name"]: row for row in gallery.rows()}
    assert all(hit.name in listed for hit in hits)
    paths = [store_rows[name]["path"] for name in listed]
    with torch.inference_mode():
        images, said = second.encode_pictures(paths), second.encode_captions(["a red bat"], "en")
        scores = second.model.similarity(images[:], said[:])[:, 0]
    assert [hit.score for hit in hits] == pytest.approx(scores.sort(descending=True)[0][:3].tolist(), abs=1e-4)
    with pytest.raises(RecipeError, match="no single vectors to index"):
        update_gallery(tmp_path / "none", second, PictureFolder(Path(paths[0]).parent), {})


@pytest.fixture(scope="module")
def reranking(tmp_path_factory, used: Tiny) -> Tiny:
    """A recipe with a reranker, its model exported and its corpus indexed."""
    own = Tiny(tmp_path_factory.mktemp("reranking"))
    shutil.copytree(used.workspace.root / "jobs", own.workspace.root / "jobs")
    reranker = "--vse.reranker={row: human, model: scan-t2i-avg, first_k: 6, epochs: 1, decay_epoch: 1}"
    assert own.main("vse", reranker, "--vse.only=[human]") == 0
    with pytest.MonkeyPatch.context() as patch:  # after one epoch it is not
        patch.setattr("pipeline.retrieval.reranking.is_better", lambda *_: True)
        assert own.main("index", reranker, "--vse.only=[human]") == 0
    return own


def test_the_reranker_of_a_recipe_is_exported_and_orders_what_is_found(reranking: Tiny, capsys) -> None:
    place = reranking.workspace.root / "tiny"
    gallery = Gallery.open(place / "gallery")
    second = gallery.exported.reranker
    assert second is not None
    assert (second.name, second.languages, gallery.exported.first_k) == ("scan-t2i-avg, human", ["en"], 6)
    plain, reranked = (gallery.search("a red bat", 6, first=first) for first in (0, None))
    assert reranked == gallery.search("a red bat", 6, reranker=second, first=6) != plain
    assert sorted(names(reranked)) == sorted(names(plain))
    with torch.inference_mode():
        (found,) = gallery.describe_known(plain[0].name, 3).values()
        regions = gallery.regions_of(plain[:1])[0]
        said = second.encode_captions([hit.name for hit in found], "en")
        scores = second.model.similarity(second.encode_regions(regions)[:], said[:])[0]
    assert [hit.score for hit in found] == pytest.approx(scores.tolist(), abs=1e-5) == sorted(scores, reverse=True)
    assert gallery.describe_known(plain[0].name, 3, first=0) != {"en": found}
    capsys.readouterr()
    for options, hits in ((["--no-rerank"], plain), ([], reranked)):
        assert reranking.main("search", "a red bat", "--top", "6", *options) == 0
        assert [Path(line.split()[-1]).name for line in capsys.readouterr().out.splitlines()] == [
            hit.path.name for hit in hits
        ]


def test_the_reranker_s_figures_are_those_of_its_test(reranking: Tiny) -> None:
    exported = Gallery.open(reranking.workspace.root / "tiny" / "gallery").exported
    scores = reranking.metrics("rerank-san-scan-t2i-avg-human-1")["test"]
    assert exported.first_right == {"en": scores["en"]["t2i_r1"]}
    card = (exported.folder / "README.md").read_text()
    assert "scan-t2i-avg, human (`reranker/`), reranks the first 6 results" in card


def test_a_reranker_that_is_spoiled_is_one_line(reranking: Tiny, tmp_path: Path) -> None:
    folder = shutil.copytree(reranking.workspace.root / "tiny" / "model", tmp_path / "model")
    about = json.loads((folder / "model.json").read_text())
    del about["reranker"]["first_k"]
    (folder / "model.json").write_text(json.dumps(about))
    with pytest.raises(RecipeError, match="reranker is not complete"):
        ExportedModel.load(folder)


def test_regions_of_a_folder_s_pictures_are_kept_for_a_second_model(
    exported: ExportedModel, own: Path, tmp_path: Path
) -> None:
    update_gallery(tmp_path / "gallery", exported, PictureFolder(own), {})
    gallery = Gallery.open(tmp_path / "gallery", exported)
    assert [hit.score for hit in gallery.search("a bat", 4, reranker=exported)] == pytest.approx(
        [hit.score for hit in gallery.search("a bat", 4)], abs=1e-5
    )


def test_regions_of_pictures_that_were_found_are_those_that_the_model_reads(
    used: Tiny, exported: ExportedModel, own: Path, tmp_path: Path
) -> None:
    """For pictures of a folder and for those of a corpus."""
    update_gallery(tmp_path / "gallery", exported, PictureFolder(own), {})
    for folder in (tmp_path / "gallery", used.workspace.root / "tiny" / "gallery"):
        gallery = Gallery.open(folder, exported)
        hits = gallery.search("a small red bat", 3)
        for hit, regions, boxes in zip(hits, *gallery.regions_of(hits), strict=True):
            expected, where = exported.regions_of(hit.path)
            np.testing.assert_allclose(regions, expected, atol=2e-3)
            np.testing.assert_allclose(boxes, where, atol=1e-6)


def test_pictures_and_captions_are_drawn_without_repetition(used: Tiny, exported: ExportedModel) -> None:
    gallery = Gallery.open(used.workspace.root / "tiny" / "gallery", exported)
    assert gallery.languages == ["en"]
    drawn = gallery.draw_pictures(5, seed=1)
    assert len(set(names(drawn))) == 5
    assert drawn == gallery.draw_pictures(5, seed=1)
    assert drawn != gallery.draw_pictures(5, seed=2)
    assert sorted(names(gallery.draw_pictures(10_000, seed=1))) == sorted(row["name"] for row in gallery.rows())
    texts = gallery.draw_captions("en", 10_000, seed=1)
    assert len(texts) == len(set(texts)) > 5
    assert gallery.draw_captions("en", 5, seed=1) == gallery.draw_captions("en", 5, seed=1)
