"""A trained model in use: exported, moved and loaded; a gallery that is updated, killed and searched at once."""

import json
import pickle
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from data.errors import DataError
from data.extractor import Extractor
from data.regions import RegionStore
from modules.beam import BeamSettings
from pipeline.errors import RecipeError
from pipeline.export import _plain
from pipeline.files import digest_of
from pipeline.find import contact_sheet
from pipeline.finder import Finder
from pipeline.gallery import Gallery, Hit
from pipeline.indexing import update_gallery
from pipeline.mmt import read_translations
from pipeline.parts import Parts
from pipeline.pictures import PictureFolder, StoredRegions
from pipeline.prepare import pictures_of
from pipeline.recipe import load_recipe
from pipeline.settings import TrainerSettings
from pipeline.synthesis import load_translator, translate_all
from tests.pipeline.kills import Kills, Moment, kills
from tests.pipeline.tiny import Tiny, at


@pytest.fixture(scope="module")
def used(tiny: Tiny) -> Tiny:
    """The tiny recipe's best model is exported and its pictures are indexed."""
    assert tiny.main("index") == 0
    return tiny


@pytest.fixture(scope="module")
def finder(used: Tiny) -> Finder:
    return Finder.load(used.workspace.root / "tiny" / "model")


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder of somebody's pictures."""
    folder = tmp_path / "own"
    for number in range(6):
        draw(folder / f"{number}.png", number)
    return folder


def draw(path: Path, number: int, size: tuple[int, int] = (60, 40)) -> Image.Image:
    image = Image.new("RGB", size, (40 * number % 256, 90, 200 - 30 * number % 200))
    image.paste((250, 20 * number, 20), (5, 5, 25, 25))
    path.parent.mkdir(exist_ok=True)
    if path.suffix:
        image.save(path)
    return image


def names(hits: list[Hit]) -> list[str]:
    return [hit.name for hit in hits]


def test_an_exported_model_encodes_as_the_trained_one_did(used: Tiny, finder: Finder) -> None:
    """Pixels through the extractor give the very regions of the corpus, and vectors do not depend on the batch."""
    corpus = used.job("corpus")
    pictures = list(pictures_of(corpus).items())[:5]
    gallery = Gallery.open(used.workspace.root / "tiny" / "gallery", finder)
    stored = {row["name"]: row["digest"] for row in gallery.rows()}
    kept = gallery._parts.take([stored[name] for name, _ in pictures], "vectors")
    np.testing.assert_allclose(finder.encode_pictures([path for _, path in pictures]).single(), kept, atol=1e-5)
    one = finder.encode_pictures([pictures[3][1]]).single()
    np.testing.assert_allclose(one[0], kept[3], atol=1e-5)
    texts = ["a red bat", "a small blue box on the left of a ball", "a"]
    together = finder.encode_captions(texts, "en").single()
    apart = torch.cat([finder.encode_captions([text], "en").single() for text in texts])
    torch.testing.assert_close(together, apart, atol=1e-5, rtol=0)


def test_a_search_is_the_model_s_own_order(used: Tiny, finder: Finder) -> None:
    gallery = Gallery.open(used.workspace.root / "tiny" / "gallery", finder)
    query = "a small red bat on the left"
    hits = gallery.search(query, top=len(gallery))
    vectors = gallery._parts.take([row["digest"] for row in gallery.rows()], "vectors")
    scores = torch.from_numpy(vectors) @ finder.encode_captions([query], "en").single()[0]
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
    known = gallery.describe_known(hits[0].name)
    assert [hit.score for hit in captions["en"]] == pytest.approx([hit.score for hit in known["en"]], abs=1e-5)
    assert len(captions["en"]) == 5
    assert captions["en"][0].score >= captions["en"][4].score


def test_the_shell_prints_names_json_and_a_sheet(used: Tiny, tmp_path: Path, capsys) -> None:
    capsys.readouterr()
    sheet, queries = tmp_path / "sheet.html", tmp_path / "queries.jsonl"
    assert used.main("search", "a red bat", "--top", "3", "--sheet", str(sheet)) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
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
        (("search",), "give a query or --queries FILE"), (("search", "  "), "the query is empty"),
        (("search", "ein Hund", "--language", "de"), "was trained on en; choose"),
        (("search", "a", "--top", "0"), "0 pictures are wanted; expected 1 or more"),
        (("search", "a", "--gallery", "gone"), "gone: no gallery here; run `make index`"),
        (("index", "--model", "gone"), "no exported model here"), (("search", "caf\udce9"), "not UTF-8; convert it"),
        (("search", "a", "--sheet", "."), "expected a file"),
        (("describe",), "give a picture"), (("describe", "gone.jpg"), "no such file"),
        (("index", "--pictures", "gone"), "no such folder"), (("vse", "a dog"), "'a dog' goes with search or describe"),
        (("index", "--top", "3"), "--top goes with search, describe, not with index"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(used: Tiny, arguments: tuple[str, ...], said: str, capsys) -> None:
    capsys.readouterr()
    assert used.main(*arguments) == 1
    assert said in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("query", ["a " * 50_000, "🐕🐕🐕", "كلب أحمر", "[bold]x[/]", "\x1b[31m<b>"])
def test_odd_queries_find_something(used: Tiny, finder: Finder, query: str) -> None:
    assert len(Gallery.open(used.workspace.root / "tiny" / "gallery", finder).search(query, 4)) == 4


def test_markup_in_a_query_or_a_name_stays_text() -> None:
    page = contact_sheet([("<script>alert(1)</script>", "en", [Hit('"><img src=x onerror=alert(2)>.png', 0.5)])])
    assert "<script>" not in page
    assert "<img src=x" not in page


def test_a_gallery_holds_what_can_be_read_and_lists_the_rest(finder: Finder, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    image = draw(folder / "plain.jpg", 1)
    for mode in ("L", "P", "RGBA", "LA", "1"):
        image.convert(mode).save(folder / f"{mode}.png")
    Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 200).save(folder / "16-bit.png")
    image.convert("CMYK").save(folder / "cmyk.jpg")
    image.save(folder / "turned.jpg", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0")
    (folder / "short.jpg").write_bytes((folder / "plain.jpg").read_bytes()[:300])
    (folder / "text.png").write_text("no picture")
    (folder / "empty.png").touch()
    Image.new("1", (20_000, 20_000)).save(folder / "huge.png")
    update = update_gallery(tmp_path / "gallery", finder, PictureFolder(folder), {})
    assert (update.pictures, update.computed) == (9, 9)
    assert set(update.left) == {"short.jpg", "text.png", "empty.png", "huge.png"}
    assert all(reason.startswith("not a readable picture") for reason in update.left.values())
    assert json.loads((tmp_path / "gallery" / "generations" / "1" / "left.json").read_text()) == update.left
    assert len(Gallery.open(tmp_path / "gallery", finder).search("a bat", 50)) == 9


def test_an_update_computes_only_what_is_new(finder: Finder, own: Path, tmp_path: Path, monkeypatch) -> None:
    gallery, read = tmp_path / "gallery", []

    def watched(self, paths, workers, real=Extractor.extract_readable):
        read.extend(path.name for path in paths)
        return real(self, paths, workers)

    monkeypatch.setattr(Extractor, "extract_readable", watched)
    texts = {"en": ["a bat", "a ball", "a bat"]}
    first = update_gallery(gallery, finder, PictureFolder(own), texts)
    assert (first.pictures, first.computed, first.gone, first.captions) == (6, 6, 0, {"en": 2})
    before = Gallery.open(gallery, finder).search("a bat", 10)
    read.clear()
    (own / "0.png").rename(own / "moved.png")  # known by its content
    shutil.copyfile(own / "1.png", own / "twin.png")
    draw(own / "2.png", 9)
    draw(own / "new.png", 7)
    (own / "3.png").unlink()
    second = update_gallery(gallery, finder, PictureFolder(own))
    assert sorted(read) == ["2.png", "new.png"]
    assert (second.pictures, second.computed, second.gone, second.captions) == (7, 2, 2, {"en": 2})
    after = Gallery.open(gallery, finder)
    assert sorted(names(after.search("a bat", 10))) == [
        "1.png",
        "2.png",
        "4.png",
        "5.png",
        "moved.png",
        "new.png",
        "twin.png",
    ]
    scores = {hit.name: hit.score for hit in after.search("a bat", 10)}
    assert scores["moved.png"] == pytest.approx({hit.name: hit.score for hit in before}["0.png"], abs=1e-6)
    assert scores["twin.png"] == scores["1.png"]
    whole = update_gallery(tmp_path / "anew", finder, PictureFolder(own), texts)
    assert whole.computed == 6  # twins are computed once
    anew = {hit.name: hit.score for hit in Gallery.open(tmp_path / "anew", finder).search("a bat", 10)}
    assert anew == pytest.approx(scores, abs=1e-6)


def test_what_no_generation_needs_is_cleared_away(finder: Finder, own: Path, tmp_path: Path) -> None:
    gallery = tmp_path / "gallery"
    for number in range(4):
        for path in own.glob("*.png"):
            draw(path, 10 * number + int(path.stem))
        update_gallery(gallery, finder, PictureFolder(own), {"en": [f"a bat {number}"]})
    assert {path.name for path in (gallery / "generations").iterdir()} == {"3", "4"}
    (made,) = (gallery / "parts").iterdir()
    assert len(list((made / "pictures").iterdir())) == 2  # of the present generation and the one before
    assert len(list((made / "captions").iterdir())) == 1


def test_an_empty_folder_is_an_empty_gallery(finder: Finder, own: Path, tmp_path: Path) -> None:
    gallery = tmp_path / "gallery"
    update_gallery(gallery, finder, PictureFolder(own), {})
    shutil.rmtree(own)
    own.mkdir()
    update = update_gallery(gallery, finder, PictureFolder(own))
    assert (update.pictures, update.gone) == (0, 6)
    assert Gallery.open(gallery, finder).search("a bat") == []


def test_a_damaged_part_is_computed_again(finder: Finder, own: Path, tmp_path: Path) -> None:
    gallery = tmp_path / "gallery"
    update_gallery(gallery, finder, PictureFolder(own), {})
    (part,) = (gallery / "parts").glob("*/pictures/*.safetensors")
    part.write_bytes(part.read_bytes()[:40])
    assert update_gallery(gallery, finder, PictureFolder(own)).computed == 6
    assert len(Gallery.open(gallery, finder).search("a bat")) == 6


def test_a_gallery_of_another_model_or_none_is_refused(finder: Finder, own: Path, tmp_path: Path) -> None:
    gallery = tmp_path / "gallery"
    update_gallery(gallery, finder, PictureFolder(own), {})
    about = json.loads((gallery / "gallery.json").read_text())
    (gallery / "gallery.json").write_text(json.dumps(about | {"made_of": "other"}))
    with pytest.raises(RecipeError, match="made by another model"):
        Gallery.open(gallery, finder)
    (gallery / "gallery.json").write_text("{")
    with pytest.raises(RecipeError, match="not readable"):
        Gallery.open(gallery, finder)
    with pytest.raises(RecipeError, match="holds something else"):
        update_gallery(own, finder, PictureFolder(own), {})
    (gallery / "gallery.json").write_text(json.dumps(about))
    (gallery / "generations" / "1" / "pictures" / "0" / "index.faiss").write_bytes(b"x")
    with pytest.raises(RecipeError, match="build it again"):
        Gallery.open(gallery, finder)


@pytest.fixture
def moved(finder: Finder, tmp_path: Path) -> Path:
    """The model folder, somewhere else."""
    return Path(shutil.copytree(finder.folder, tmp_path / "elsewhere" / "model"))


def test_a_model_folder_can_be_moved(moved: Path, finder: Finder) -> None:
    other = Finder.load(moved)
    assert other.fingerprint == finder.fingerprint
    assert torch.equal(other.encode_captions(["a bat"]).single(), finder.encode_captions(["a bat"]).single())
    card = (moved / "README.md").read_text()
    assert "| en |" in card
    assert "Multi" not in card
    assert str(finder.folder) not in card + (moved / "recipe.yaml").read_text() + (moved / "model.json").read_text()


def test_a_changed_or_missing_file_of_a_model_is_one_line(moved: Path) -> None:
    words = (moved / "words.json").read_text()
    (moved / "words.json").write_text(words + " ")
    with pytest.raises(RecipeError, match=r"words\.json: is not what was exported"):
        Finder.load(moved)
    (moved / "words.json").unlink()
    with pytest.raises(RecipeError, match=r"words\.json: no such file"):
        Finder.load(moved)


def test_a_pickle_is_never_loaded(moved: Path, tmp_path: Path) -> None:
    """Even where the digest says that it is meant."""
    import hashlib

    class Evil:
        def __reduce__(self):
            return (Path(tmp_path / "evil").touch, ())

    (moved / "weights.safetensors").write_bytes(pickle.dumps(Evil()))
    about = json.loads((moved / "model.json").read_text())
    about["files"]["weights.safetensors"] = hashlib.sha256((moved / "weights.safetensors").read_bytes()).hexdigest()
    (moved / "model.json").write_text(json.dumps(about))
    with pytest.raises(RecipeError, match="not a readable safetensors file"):
        Finder.load(moved)
    assert not (tmp_path / "evil").exists()


@pytest.mark.parametrize(
    "change",
    [{"files": {"../../secret": "0"}}, {"format": 99}, {"languages": "en"}, {"regions": 0}, {"regions": {}},
     {"files": {}}, {"languages": []}, {"languages": ["tlh"]}, {"languages": [5]},
     {"regions": {"regions": 3, "size": 64, "version": "x"}}],
)  # fmt: skip
def test_a_damaged_model_json_is_one_line(moved: Path, change: dict) -> None:
    about = json.loads((moved / "model.json").read_text())
    (moved / "model.json").write_text(json.dumps(about | change))
    with pytest.raises(RecipeError, match=r"model\.json"):
        Finder.load(moved)


def test_what_was_not_exported_is_not_loaded(moved: Path) -> None:
    """Neither a file of another kind, be it listed, nor one that is not listed, nor a text model from elsewhere."""
    (moved / "text").mkdir()
    (moved / "text" / "pytorch_model.bin").write_bytes(pickle.dumps({}))
    with pytest.raises(RecipeError, match=r"pytorch_model\.bin: was not exported"):
        Finder.load(moved)
    about = json.loads((moved / "model.json").read_text())
    listed = about["files"] | {"text/pytorch_model.bin": digest_of(moved / "text" / "pytorch_model.bin")}
    (moved / "model.json").write_text(json.dumps(about | {"files": listed}))
    with pytest.raises(RecipeError, match="a file of this kind is not loaded"):
        Finder.load(moved)
    shutil.rmtree(moved / "text")
    network = json.loads((moved / "network.json").read_text())
    network["arguments"]["pretrained"] = "someone/evil"
    (moved / "network.json").write_text(json.dumps(network))
    listed = about["files"] | {"network.json": digest_of(moved / "network.json")}
    (moved / "model.json").write_text(json.dumps(about | {"files": listed}))
    with pytest.raises(RecipeError, match=r"its text model .* is missing"):
        Finder.load(moved)


def test_the_exported_recipe_is_a_recipe(moved: Path, used: Tiny) -> None:
    with at(used.folder):
        assert load_recipe(str(moved / "recipe.yaml")).vse == used.recipe().vse


def test_a_gallery_replaces_nothing_of_others(finder: Finder, own: Path, tmp_path: Path) -> None:
    drawing = tmp_path / "place" / "parts" / "engine" / "drawing.dwg"
    drawing.parent.mkdir(parents=True)
    drawing.write_text("of value")
    with pytest.raises(RecipeError, match="holds something else"):
        update_gallery(tmp_path / "place", finder, PictureFolder(own), {})
    assert drawing.read_text() == "of value"


def test_an_export_replaces_nothing_of_others(used: Tiny, finder: Finder, tmp_path: Path) -> None:
    place, thesis = tmp_path / "place", tmp_path / "place" / "thesis.txt"
    shutil.copytree(finder.folder, place)
    thesis.write_text("of value")
    assert used.main("export", "--output", str(place)) == 1
    assert thesis.read_text() == "of value"
    thesis.unlink()
    assert used.main("export", "--output", str(place)) == 0
    (tmp_path / "place.before").mkdir()
    (tmp_path / "place.before" / "model.json").write_text("of value")
    assert used.main("export", "--output", str(place)) == 1
    assert (tmp_path / "place.before" / "model.json").read_text() == "of value"


def test_an_export_that_was_killed_between_is_mended(used: Tiny, finder: Finder, tmp_path: Path) -> None:
    shutil.copytree(finder.folder, tmp_path / "model.before")
    shutil.copytree(finder.folder, tmp_path / "model.ready")
    assert used.main("export", "--output", str(tmp_path / "model")) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"model", "model.lock"}
    assert Finder.load(tmp_path / "model").fingerprint == finder.fingerprint


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
    old = Gallery.open(gallery).finder.fingerprint
    assert copy.main("index", *better) == 0
    assert Gallery.open(gallery).finder.fingerprint != old


@pytest.mark.parametrize("damage", ["pictures.parquet", "captions-en.parquet", "all"])
def test_a_damaged_generation_is_mended_by_the_command_that_is_advised(
    damage: str, finder: Finder, own: Path, tmp_path: Path
) -> None:
    gallery = tmp_path / "gallery"
    update_gallery(gallery, finder, PictureFolder(own), {"en": ["a bat"]})
    place = gallery / "generations" / "1"
    if damage == "all":
        shutil.rmtree(place)
    else:
        (place / damage).write_bytes(b"PAR1")
    with pytest.raises(RecipeError, match="run `make index` again"):
        Gallery.open(gallery, finder)
    update_gallery(gallery, finder, PictureFolder(own))
    assert len(Gallery.open(gallery, finder).search("a bat")) == 6


def test_a_search_deletes_nothing(finder: Finder, own: Path, tmp_path: Path) -> None:
    gallery = tmp_path / "gallery"
    update_gallery(gallery, finder, PictureFolder(own), {})
    (part,) = (gallery / "parts").glob("*/pictures/*.safetensors")
    part.write_bytes(b"damaged")
    with pytest.raises(RecipeError, match="open it again"):
        Gallery.open(gallery, finder).describe_known("1.png")
    assert part.exists()


def test_models_of_other_regions_are_refused(used: Tiny, finder: Finder, own: Path, tmp_path: Path) -> None:
    assert finder.standard is not None
    other = replace(finder, standard=(finder.standard[0] + 0.5, finder.standard[1]), reads="other")
    update_gallery(tmp_path / "gallery", finder, PictureFolder(own), {})
    with pytest.raises(RecipeError, match="it reads other regions than"):
        Gallery.open(tmp_path / "gallery", finder).search("a bat", reranker=other)
    corpus = used.job("corpus")
    stored = StoredRegions(RegionStore(corpus / "regions"), pictures_of(corpus))
    with pytest.raises(RecipeError, match="its regions are not made as those"):
        update_gallery(tmp_path / "stored", other, stored, {})


def test_a_picture_that_changes_while_it_is_read_is_left_for_the_next_update(
    finder: Finder, own: Path, tmp_path: Path, monkeypatch
) -> None:
    def slow(self, paths, workers, real=Extractor.extract_readable):
        draw(own / "0.png", 77)
        return real(self, paths, workers)

    shutil.copyfile(own / "0.png", own / "twin.png")
    with monkeypatch.context() as patch:
        patch.setattr(Extractor, "extract_readable", slow)
        first = update_gallery(tmp_path / "gallery", finder, PictureFolder(own), {})
    assert first.left == dict.fromkeys(["0.png", "twin.png"], "changed while it was read; run it again")
    assert update_gallery(tmp_path / "gallery", finder, PictureFolder(own)).computed == 2
    update_gallery(tmp_path / "anew", finder, PictureFolder(own), {})
    anew, mended = (
        {hit.name: hit.score for hit in Gallery.open(tmp_path / place, finder).search("a bat", 20)}
        for place in ("anew", "gallery")
    )
    assert mended == pytest.approx(anew, abs=1e-6)


def test_nothing_at_all_is_a_gallery_too(finder: Finder, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    update = update_gallery(tmp_path / "gallery", finder, PictureFolder(tmp_path / "empty"), {})
    assert (update.pictures, update.captions) == (0, {})
    assert Gallery.open(tmp_path / "gallery").search("a bat") == []


def test_names_do_nothing_to_the_terminal(used: Tiny, own: Path, tmp_path: Path, capsys) -> None:
    (own / "[bold]x\u200d\u202fy.png").write_bytes((own / "1.png").read_bytes())
    (own / "a[b].png").write_text("no picture")
    place = str(tmp_path / "my [old] gallery")
    capsys.readouterr()
    assert used.main("index", "--pictures", str(own), "--gallery", place) == 0
    printed = capsys.readouterr().out
    assert "a[b].png: not a readable picture" in printed
    assert "my [old] gallery: 7 pictures" in printed
    assert used.main("search", "a bat", "--gallery", place, "--top", "9") == 0
    printed = capsys.readouterr().out
    assert "[bold]x\ufffd" in printed
    assert "\u202f" not in printed


def test_a_model_of_sets_orders_the_first_and_indexes_nothing(used: Tiny, tmp_path: Path) -> None:
    scan = Tiny(tmp_path / "scan")
    shutil.copytree(used.workspace.root / "jobs", scan.workspace.root / "jobs")
    options = ("--vse.model=scan-t2i-avg", "--vse.only=[human]", "--vse.epochs=1", "--vse.decay_epoch=1")
    assert scan.main("vse", *options) == 0
    assert scan.main("export", "--output", str(tmp_path / "second"), *options) == 0
    second = Finder.load(tmp_path / "second")
    first = Finder.load(used.workspace.root / "tiny" / "model")
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


def test_regions_of_a_folder_s_pictures_are_kept_for_a_second_model(finder: Finder, own: Path, tmp_path: Path) -> None:
    update_gallery(tmp_path / "gallery", finder, PictureFolder(own), {})
    gallery = Gallery.open(tmp_path / "gallery", finder)
    assert [hit.score for hit in gallery.search("a bat", 4, reranker=finder)] == pytest.approx(
        [hit.score for hit in gallery.search("a bat", 4)], abs=1e-5
    )


def test_a_region_is_worth_what_the_score_loses_without_it(
    used: Tiny, finder: Finder, own: Path, tmp_path: Path
) -> None:
    """Against the plain reading, for pictures of a folder and for those of a corpus."""
    update_gallery(tmp_path / "gallery", finder, PictureFolder(own), {})
    for folder in (tmp_path / "gallery", used.workspace.root / "tiny" / "gallery"):
        gallery = Gallery.open(folder, finder)
        vector = finder.encode_captions(["a small red bat"]).single()
        hits = gallery.search("a small red bat", 3)
        for hit, (boxes, shares) in zip(hits, gallery.looked_at(vector, hits), strict=True):
            regions, where = finder.regions_of(hit.path)
            np.testing.assert_allclose(boxes, where, atol=1e-6)
            whole = finder.encode_regions(regions[None]).single() @ vector[0]
            lost = []
            for left in range(3):
                rest = np.delete(regions, left, axis=0)
                lost.append(max(0.0, float(whole - finder.encode_regions(rest[None]).single() @ vector[0])))
            np.testing.assert_allclose(shares, np.array(lost) / max(sum(lost), 1e-12), atol=2e-3)
    assert gallery.looked_at(vector, []) == []


def test_a_model_brings_its_translators(used: Tiny, finder: Finder, own: Path, tmp_path: Path) -> None:
    """As the recipe's own jobs translate; a gallery's copy follows when there are more of them."""
    assert finder.translators == ["mmt-de-en", "mmt-en-de", "mt-de-en", "mt-en-de"]
    interpreter = finder.interpreter
    assert interpreter.targets("mt", "en") == ["de"]
    assert interpreter.targets("mt", "fr") == []
    regions = RegionStore(used.job("corpus") / "regions")
    for system in ("mt", "mmt"):
        rows = read_translations(used.job(f"{system}-en-de"), "test")[:3]
        network, bpe = load_translator(used.job(f"{system}-en-de"))
        sources, images = [row["source"] for row in rows], [row["image_id"] for row in rows]
        settings = TrainerSettings(accelerator="cpu", progress=False)
        expected = translate_all(
            network, bpe, bpe.encode_all(sources, "en"), images, regions, "de", BeamSettings(), 100, settings
        )
        for source, image, best in zip(sources, images, expected, strict=True):
            seen = regions.take(regions.rows([image]))[0]
            assert interpreter.translate(source, system, "en", "de", seen) == best[0].text
    with pytest.raises(RecipeError, match="no mt-en-fr in the model; it has mmt-de-en, mmt-en-de"):
        interpreter.translate("a bat", "mt", "en", "fr")
    with pytest.raises(RecipeError, match="mmt-en-de looks at regions"):
        interpreter.translate("a bat", "mmt", "en", "de")
    few = tmp_path / "few"
    shutil.copytree(finder.folder, few)
    shutil.rmtree(few / "translators")
    about = json.loads((few / "model.json").read_text())
    about["files"] = {name: one for name, one in about["files"].items() if not name.startswith("translators")}
    (few / "model.json").write_text(json.dumps(about))
    update_gallery(tmp_path / "gallery", Finder.load(few), PictureFolder(own), {})
    assert Gallery.open(tmp_path / "gallery").finder.translators == []
    more = update_gallery(tmp_path / "gallery", finder, PictureFolder(own))
    assert more.computed == 0
    assert Gallery.open(tmp_path / "gallery").finder.translators == finder.translators


def test_searches_and_updates_at_once_do_no_harm(finder: Finder, own: Path, tmp_path: Path) -> None:
    gallery, errors, ends = tmp_path / "gallery", [], threading.Event()
    update_gallery(gallery, finder, PictureFolder(own), {"en": ["a bat"]})

    def look() -> None:
        while not ends.is_set():
            try:
                assert len(Gallery.open(gallery, finder).search("a bat", 50)) >= 6
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(8):
        draw(own / f"more-{number}.png", number + 20)
        update_gallery(gallery, finder, PictureFolder(own))
    ends.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(Gallery.open(gallery, finder)) == 14


def test_parts_give_rows_in_the_order_asked_for(tmp_path: Path) -> None:
    parts = Parts(tmp_path)
    parts.add(["a", "b"], {"x": np.array([[1], [2]])})
    parts.add(["c"], {"x": np.array([[3]])})
    again = Parts(tmp_path)
    assert again.take(["c", "a", "b", "a"], "x")[:, 0].tolist() == [3, 1, 2, 1]
    again.keep({"c"})
    assert "a" not in Parts(tmp_path)
    assert "c" in Parts(tmp_path)


@pytest.fixture(scope="module")
def server() -> Iterator[Kills]:
    with kills() as made:
        yield made


def killed(used: Tiny, folder: Path, server: Kills, moment: Moment | None) -> list[str]:
    """An update of a gallery of six pictures by two more is killed at a moment; the events of it."""
    shutil.rmtree(folder, ignore_errors=True)
    tiny = Tiny(folder)
    shutil.copytree(used.workspace.root, tiny.workspace.root, dirs_exist_ok=True)
    for number in range(6):
        draw(folder / "own" / f"{number}.png", number)
    shutil.rmtree(tiny.workspace.root / "tiny" / "gallery")
    arguments = ("index", "--pictures", str(folder / "own"))
    assert tiny.main(*arguments) == 0
    finder, gallery = Finder.load(tiny.workspace.root / "tiny" / "model"), tiny.workspace.root / "tiny" / "gallery"
    old = Gallery.open(gallery, finder).search("a bat", 20)
    draw(folder / "own" / "6.png", 6)
    draw(folder / "own" / "0.png", 7)
    (ended,) = server.run(folder, *arguments, moment=moment)
    if moment is not None:
        assert ended.status < 0, ended.said
        present = Gallery.open(gallery, finder).search("a bat", 20)
        assert present == old or len(present) == 7
        (again,) = server.run(folder, *arguments)
        assert again.status == 0, again.said
    new = {hit.name: hit.score for hit in Gallery.open(gallery, finder).search("a bat", 20)}
    with at(folder):
        update_gallery(folder / "anew", finder, PictureFolder(folder / "own"), {})
        assert new == pytest.approx(
            {hit.name: hit.score for hit in Gallery.open(folder / "anew", finder).search("a bat", 20)}, abs=1e-6
        )
    assert not list(gallery.rglob("*.partial"))
    return ended.events


SOME = [
    Moment("open *pictures/*.tmp"), Moment("open *pictures/*.tmp", what="cut"), Moment("table *pictures.parquet"),
    Moment("open *index.json", what="cut"), Moment("rename *.partial"), Moment("open *gallery.json*", what="cut"),
    Moment("rename *gallery.json*"),
]  # fmt: skip


@pytest.mark.parametrize("moment", SOME, ids=str)
def test_a_killed_update_leaves_the_old_gallery_and_the_next_ends_it(
    used: Tiny, tmp_path: Path, server: Kills, moment: Moment
) -> None:
    killed(used, tmp_path / "killed", server, moment)


@pytest.mark.slow
def test_an_update_killed_at_every_event(used: Tiny, tmp_path: Path, server: Kills) -> None:
    events = killed(used, tmp_path / "whole", server, None)
    assert len(events) > 10
    seen: dict[str, int] = {}
    for event in events:
        name = event.replace("[", "[[]")
        seen[name] = seen.get(name, 0) + 1
        killed(used, tmp_path / "killed", server, Moment(name, seen[name]))


def test_a_missing_picture_is_named(finder: Finder, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        finder.encode_pictures([tmp_path / "gone.jpg"])


def test_shards_find_what_one_index_finds_and_only_changed_ones_are_built(
    finder: Finder, own: Path, tmp_path: Path, monkeypatch
) -> None:
    texts = {"en": ["a bat", "a red ball", "a blue box", "a seal"]}
    update_gallery(tmp_path / "whole", finder, PictureFolder(own), texts)
    monkeypatch.setattr("pipeline.indexing.SHARD", 2)
    gallery = tmp_path / "gallery"
    update_gallery(gallery, finder, PictureFolder(own), texts)
    one, several = Gallery.open(tmp_path / "whole"), Gallery.open(gallery)
    for top in (1, 4, 50):
        hits, found = one.search("a red bat", top), several.search("a red bat", top)
        assert names(found) == names(hits)
        assert [hit.score for hit in found] == pytest.approx([hit.score for hit in hits], abs=1e-6)
    assert names(one.describe(own / "2.png")["en"]) == names(several.describe(own / "2.png")["en"])
    first = gallery / "generations" / "1" / "pictures"
    assert sorted(path.name for path in first.iterdir()) == ["0", "1", "2", "shards.json"]
    draw(own / "zz.png", 8)
    update_gallery(gallery, finder, PictureFolder(own))
    second = gallery / "generations" / "2" / "pictures"
    same = [(first / name / "index.faiss").samefile(second / name / "index.faiss") for name in "012"]
    assert same == [True, True, True]
    assert len(Gallery.open(gallery)) == 7
    (second / "1" / "index.faiss").unlink()
    (second / "1" / "index.faiss").write_bytes(b"damaged")
    with pytest.raises(RecipeError, match="not readable"):
        Gallery.open(gallery)
    update_gallery(gallery, finder, PictureFolder(own))
    assert len(Gallery.open(gallery).search("a bat", 50)) == 7


def test_two_hundred_pictures_of_all_kinds(finder: Finder, tmp_path: Path) -> None:
    """JPEG and PNG of many sizes and modes, some turned by EXIF; what cannot be read is listed, the rest is found."""
    folder, rng = tmp_path / "many", np.random.default_rng(0)
    folder.mkdir()
    modes = ("RGB", "L", "P", "RGBA", "LA", "CMYK", "1", "I;16")
    for number in range(200):
        mode, size = modes[number % len(modes)], tuple(rng.integers(8, 400, 2).tolist())
        image = draw(tmp_path / "none", number, size)
        if mode == "I;16":
            image = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
        else:
            image = image.convert(mode)
        suffix = "png" if mode in ("P", "RGBA", "LA", "1", "I;16") else ("jpg" if mode == "CMYK" else "jpeg")
        exif = Image.Exif()
        exif[0x0112] = 1 + number % 8
        image.save(folder / f"{number:03}.{suffix}", exif=exif)
    spoiled = sorted(folder.iterdir())[::40]
    for path in spoiled[:3]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    for path in spoiled[3:]:
        path.write_text("no picture")
    (folder / "notes.txt").write_text("no picture either")
    done = update_gallery(tmp_path / "gallery", finder, PictureFolder(folder, 2), {"en": ["a bat"]})
    assert set(done.left) == {path.name for path in spoiled} | {"notes.txt"}
    assert done.pictures == 200 - len(spoiled)
    gallery = Gallery.open(tmp_path / "gallery")
    hits = gallery.search("a red bat", 500)
    assert {hit.name for hit in hits} == {path.name for path in folder.glob("[0-9]*")} - {path.name for path in spoiled}
    one = folder / "111.png"
    vector = finder.encode_pictures([one]).single()
    assert max(hit.score for hit in gallery.pictures_near(vector, 1)) == pytest.approx(1.0, abs=1e-4)


def test_a_folder_of_links_into_a_cache_is_a_model_too(finder: Finder, tmp_path: Path) -> None:
    """As a download from a hub leaves it: files that are links, and hidden ones beside them."""
    snapshot, blobs = tmp_path / "snapshots" / "abc", tmp_path / "blobs"
    blobs.mkdir()
    for number, path in enumerate(sorted(path for path in finder.folder.rglob("*") if path.is_file())):
        shutil.copyfile(path, blobs / str(number))
        link = snapshot / path.relative_to(finder.folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blobs / str(number))
    (snapshot / ".gitattributes").write_text("*.safetensors filter=lfs")
    loaded = Finder.load(snapshot)
    assert loaded.fingerprint == finder.fingerprint
    torch.testing.assert_close(loaded.encode_captions(["a bat"]).single(), finder.encode_captions(["a bat"]).single())


def rewritten(model: Path, files: dict[str, str]) -> Path:
    """More files in an exported model, with their digests, as somebody could who shares one."""
    for name, text in files.items():
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).write_text(text)
    about = json.loads((model / "model.json").read_text())
    about["files"] |= {name: digest_of(model / name) for name in files}
    (model / "model.json").write_text(json.dumps(about))
    return model


def test_translators_that_are_none_are_refused(finder: Finder, tmp_path: Path) -> None:
    """Among them an ensemble, which would name folders elsewhere."""
    for number, name in enumerate(["notes.md", "foo/network.json", "mt-en-fr/network.json"]):
        model = tmp_path / str(number)
        shutil.copytree(finder.folder, model)
        with pytest.raises(RecipeError, match="no whole translator; get the model folder again"):
            Finder.load(rewritten(model, {f"translators/{name}": "{}"}))
    ensembles = ('["/etc", "/tmp"]', '["."]', "[1]", '"x"')
    for number, text in enumerate([*(f'{{"ensemble": {members}}}' for members in ensembles), "5", "[]"]):
        model = tmp_path / f"e{number}"
        shutil.copytree(finder.folder, model)
        loaded = Finder.load(rewritten(model, {"translators/mt-en-de/network.json": text}))
        with pytest.raises(RecipeError, match="no translator here"):
            loaded.interpreter.translate("a bat", "mt", "en", "de")


def test_captions_stay_when_the_model_changes(used: Tiny, finder: Finder, own: Path, tmp_path: Path) -> None:
    update_gallery(tmp_path / "gallery", finder, PictureFolder(own), {"en": ["a bat", "a ball"]})
    other = replace(finder, fingerprint="another")
    assert update_gallery(tmp_path / "gallery", other, PictureFolder(own)).captions == {"en": 2}


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_damaged_parts_are_one_line(finder: Finder, own: Path, tmp_path: Path, damage: str) -> None:
    update_gallery(tmp_path / "gallery", finder, PictureFolder(own), {})
    gallery = Gallery.open(tmp_path / "gallery")
    parts = gallery._parts
    (path,) = parts.folder.glob("*.safetensors")
    path.unlink() if damage == "gone" else path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(RecipeError, match="run `make index`"):
        parts.take([gallery.rows()[0]["digest"]], "vectors")
    with pytest.raises(RecipeError, match="run `make index`"):
        gallery.describe_known("1.png")


def test_an_export_does_not_say_where_networks_lie(tmp_path: Path) -> None:
    recipe = load_recipe("scenes", [f"--regions.model={tmp_path}", "--vse.pretrained=org/hub-name"])
    plain = _plain(recipe)
    assert plain["regions"]["model"] == tmp_path.name
    assert plain["vse"]["pretrained"] == "org/hub-name"
    assert str(tmp_path) not in json.dumps(plain)
