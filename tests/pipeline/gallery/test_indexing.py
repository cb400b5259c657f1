"""A gallery that is brought up to date: what is new alone, killed at any moment, searched at the same time."""

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from data.pictures.extractor import Extractor
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.indexing import update_gallery
from pipeline.gallery.picture_sources import PictureFiles, PictureFolder
from tests.pipeline.drawn import draw, names
from tests.pipeline.kills import Kills, Moment, but_one
from tests.pipeline.tiny import Tiny, at


def test_a_gallery_holds_what_can_be_read_and_lists_the_rest(exported: ExportedModel, tmp_path: Path) -> None:
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
    update = update_gallery(tmp_path / "gallery", exported, PictureFolder(folder), {})
    assert (update.pictures, update.computed) == (9, 9)
    assert set(update.left) == {"short.jpg", "text.png", "empty.png", "huge.png"}
    assert all(reason.startswith("not a readable picture") for reason in update.left.values())
    assert json.loads((tmp_path / "gallery" / "generations" / "1" / "left.json").read_text()) == update.left
    assert len(Gallery.open(tmp_path / "gallery", exported).search("a bat", 50)) == 9


def test_an_update_computes_only_what_is_new(exported: ExportedModel, own: Path, tmp_path: Path, monkeypatch) -> None:
    gallery, read = tmp_path / "gallery", []

    def watched(self, paths, workers, real=Extractor.extract_readable):
        read.extend(path.name for path in paths)
        return real(self, paths, workers)

    monkeypatch.setattr(Extractor, "extract_readable", watched)
    texts = {"en": ["a bat", "a ball", "a bat"]}
    first = update_gallery(gallery, exported, PictureFolder(own), texts)
    assert (first.pictures, first.computed, first.gone, first.captions) == (6, 6, 0, {"en": 2})
    before = Gallery.open(gallery, exported).search("a bat", 10)
    read.clear()
    (own / "0.png").rename(own / "moved.png")  # known by its content
    shutil.copyfile(own / "1.png", own / "twin.png")
    draw(own / "2.png", 9)
    draw(own / "new.png", 7)
    (own / "3.png").unlink()
    second = update_gallery(gallery, exported, PictureFolder(own))
    assert sorted(read) == ["2.png", "new.png"]
    assert (second.pictures, second.computed, second.gone, second.captions) == (7, 2, 2, {"en": 2})
    assert first.pictures + second.new - second.gone == second.pictures  # what was moved is neither
    after = Gallery.open(gallery, exported)
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
    whole = update_gallery(tmp_path / "anew", exported, PictureFolder(own), texts)
    assert whole.computed == 6  # twins are computed once
    anew = {hit.name: hit.score for hit in Gallery.open(tmp_path / "anew", exported).search("a bat", 10)}
    assert anew == pytest.approx(scores, abs=1e-6)


def test_what_no_generation_needs_is_cleared_away(exported: ExportedModel, own: Path, tmp_path: Path) -> None:
    gallery = tmp_path / "gallery"
    for number in range(4):
        for path in own.glob("*.png"):
            draw(path, 10 * number + int(path.stem))
        update_gallery(gallery, exported, PictureFolder(own), {"en": [f"a bat {number}"]})
    assert {path.name for path in (gallery / "generations").iterdir()} == {"3", "4"}
    (made,) = (gallery / "parts").iterdir()
    assert len(list((made / "pictures").iterdir())) == 2  # of the present generation and the one before
    assert len(list((made / "captions").iterdir())) == 1


def test_a_gallery_can_become_empty(exported: ExportedModel, own: Path, tmp_path: Path) -> None:
    gallery = tmp_path / "gallery"
    update_gallery(gallery, exported, PictureFolder(own), {})
    update = update_gallery(gallery, exported, PictureFiles({}))
    assert (update.pictures, update.gone) == (0, 6)
    assert Gallery.open(gallery, exported).search("a bat") == []


def test_a_search_says_which_pictures_are_gone(exported: ExportedModel, own: Path, tmp_path: Path) -> None:
    update_gallery(tmp_path / "gallery", exported, PictureFolder(own), {})
    found = Gallery.open(tmp_path / "gallery", exported).search("a bat", 4)
    assert not any("no longer there" in note for note in found.notes)
    first = found[0].path
    for place, said in ((first, "1 of these 4 pictures"), (own, "4 of these 4 pictures")):
        place.rename(tmp_path / f"{place.name} elsewhere")
        assert f"no longer there: {said}, first {first}; run `bildwort index`" in found.notes[-1]


def test_a_damaged_part_is_computed_again(exported: ExportedModel, own: Path, tmp_path: Path) -> None:
    gallery = tmp_path / "gallery"
    update_gallery(gallery, exported, PictureFolder(own), {})
    (part,) = (gallery / "parts").glob("*/pictures/*.safetensors")
    part.write_bytes(part.read_bytes()[:40])
    assert update_gallery(gallery, exported, PictureFolder(own)).computed == 6
    assert len(Gallery.open(gallery, exported).search("a bat")) == 6


def test_a_gallery_replaces_nothing_of_others(exported: ExportedModel, own: Path, tmp_path: Path) -> None:
    drawing = tmp_path / "place" / "parts" / "engine" / "drawing.dwg"
    drawing.parent.mkdir(parents=True)
    drawing.write_text("of value")
    with pytest.raises(RecipeError, match="holds something else"):
        update_gallery(tmp_path / "place", exported, PictureFolder(own), {})
    assert drawing.read_text() == "of value"


@pytest.mark.parametrize("damage", ["pictures.parquet", "captions-en.parquet", "all"])
def test_a_damaged_generation_is_mended_by_the_command_that_is_advised(
    damage: str, exported: ExportedModel, own: Path, tmp_path: Path
) -> None:
    gallery = tmp_path / "gallery"
    update_gallery(gallery, exported, PictureFolder(own), {"en": ["a bat"]})
    place = gallery / "generations" / "1"
    if damage == "all":
        shutil.rmtree(place)
    else:
        (place / damage).write_bytes(b"PAR1")
    with pytest.raises(RecipeError, match="run `bildwort index --gallery "):
        Gallery.open(gallery, exported)
    update_gallery(gallery, exported, PictureFolder(own))
    assert len(Gallery.open(gallery, exported).search("a bat")) == 6


def test_a_picture_that_changes_while_it_is_read_is_left_for_the_next_update(
    exported: ExportedModel, own: Path, tmp_path: Path, monkeypatch
) -> None:
    def slow(self, paths, workers, real=Extractor.extract_readable):
        draw(own / "0.png", 77)
        return real(self, paths, workers)

    shutil.copyfile(own / "0.png", own / "twin.png")
    with monkeypatch.context() as patch:
        patch.setattr(Extractor, "extract_readable", slow)
        first = update_gallery(tmp_path / "gallery", exported, PictureFolder(own), {})
    assert first.left == dict.fromkeys(["0.png", "twin.png"], "changed while it was read; run it again")
    assert update_gallery(tmp_path / "gallery", exported, PictureFolder(own)).computed == 2
    update_gallery(tmp_path / "anew", exported, PictureFolder(own), {})
    anew, mended = (
        {hit.name: hit.score for hit in Gallery.open(tmp_path / place, exported).search("a bat", 20)}
        for place in ("anew", "gallery")
    )
    assert mended == pytest.approx(anew, abs=1e-6)


def test_nothing_at_all_is_a_gallery_too(exported: ExportedModel, tmp_path: Path) -> None:
    update = update_gallery(tmp_path / "gallery", exported, PictureFiles({}), {})
    assert (update.pictures, update.captions) == (0, {})
    assert Gallery.open(tmp_path / "gallery").search("a bat") == []


@pytest.mark.whole
def test_searches_and_updates_at_once_do_no_harm(exported: ExportedModel, own: Path, tmp_path: Path) -> None:
    gallery, errors, ends = tmp_path / "gallery", [], threading.Event()
    update_gallery(gallery, exported, PictureFolder(own), {"en": ["a bat"]})

    def look() -> None:
        while not ends.is_set():
            try:
                assert len(Gallery.open(gallery, exported).search("a bat", 50)) >= 6
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(8):
        draw(own / f"more-{number}.png", number + 20)
        update_gallery(gallery, exported, PictureFolder(own))
    ends.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(Gallery.open(gallery, exported)) == 14


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
    exported, gallery = (
        ExportedModel.load(tiny.workspace.root / "tiny" / "model"),
        tiny.workspace.root / "tiny" / "gallery",
    )
    old = Gallery.open(gallery, exported).search("a bat", 20)
    draw(folder / "own" / "6.png", 6)
    draw(folder / "own" / "0.png", 7)
    (ended,) = server.run(folder, *arguments, moment=moment)
    if moment is not None:
        assert ended.status < 0, ended.said
        present = Gallery.open(gallery, exported).search("a bat", 20)
        assert present == old or len(present) == 7
        (again,) = server.run(folder, *arguments)
        assert again.status == 0, again.said
    new = {hit.name: hit.score for hit in Gallery.open(gallery, exported).search("a bat", 20)}
    with at(folder):
        update_gallery(folder / "anew", exported, PictureFolder(folder / "own"), {})
        anew = {hit.name: hit.score for hit in Gallery.open(folder / "anew", exported).search("a bat", 20)}
        assert new == pytest.approx(anew, abs=1e-6)
    assert not list(gallery.rglob("*.partial"))
    return ended.events


SOME = [
    Moment("open *pictures/*.tmp"), Moment("open *pictures/*.tmp", what="cut"), Moment("table *pictures.parquet"),
    Moment("open *index.json", what="cut"), Moment("rename *.partial"), Moment("open *gallery.json*", what="cut"),
    Moment("rename *gallery.json*"),
]  # fmt: skip


@pytest.mark.whole
@pytest.mark.parametrize("moment", but_one(SOME, 4), ids=str)
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


def test_shards_find_what_one_index_finds_and_only_changed_ones_are_built(
    exported: ExportedModel, own: Path, tmp_path: Path, monkeypatch
) -> None:
    texts = {"en": ["a bat", "a red ball", "a blue box", "a seal"]}
    update_gallery(tmp_path / "whole", exported, PictureFolder(own), texts)
    monkeypatch.setattr("pipeline.gallery.indexing.SHARD", 2)
    gallery = tmp_path / "gallery"
    update_gallery(gallery, exported, PictureFolder(own), texts)
    one, several = Gallery.open(tmp_path / "whole"), Gallery.open(gallery)
    for top in (1, 4, 50):
        hits, found = one.search("a red bat", top), several.search("a red bat", top)
        assert names(found) == names(hits)
        assert [hit.score for hit in found] == pytest.approx([hit.score for hit in hits], abs=1e-6)
    assert names(one.describe(own / "2.png")["en"]) == names(several.describe(own / "2.png")["en"])
    first = gallery / "generations" / "1" / "pictures"
    assert sorted(path.name for path in first.iterdir()) == ["0", "1", "2", "shards.json"]
    draw(own / "zz.png", 8)
    update_gallery(gallery, exported, PictureFolder(own))
    second = gallery / "generations" / "2" / "pictures"
    same = [(first / name / "index.faiss").samefile(second / name / "index.faiss") for name in "012"]
    assert same == [True, True, True]
    assert len(Gallery.open(gallery)) == 7
    (second / "1" / "index.faiss").unlink()
    (second / "1" / "index.faiss").write_bytes(b"damaged")
    with pytest.raises(RecipeError, match="not readable"):
        Gallery.open(gallery)
    update_gallery(gallery, exported, PictureFolder(own))
    assert len(Gallery.open(gallery).search("a bat", 50)) == 7


@pytest.mark.slow
def test_two_hundred_pictures_of_all_kinds(exported: ExportedModel, tmp_path: Path) -> None:
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
    for name in ("film.mp4", "notes.txt"):  # of these the text is not told
        (folder / name).write_text("no picture either")
    done = update_gallery(tmp_path / "gallery", exported, PictureFolder(folder, 2), {"en": ["a bat"]})
    assert set(done.left) == {path.name for path in spoiled} | {"film.mp4"}
    assert done.pictures == 200 - len(spoiled)
    gallery = Gallery.open(tmp_path / "gallery")
    hits = gallery.search("a red bat", 500)
    assert {hit.name for hit in hits} == {path.name for path in folder.glob("[0-9]*")} - {path.name for path in spoiled}
    one = folder / "111.png"
    vector = exported.encode_pictures([one]).single()
    assert max(hit.score for hit in gallery.pictures_near(vector, 1)) == pytest.approx(1.0, abs=1e-4)


def test_captions_stay_when_the_model_changes(used: Tiny, exported: ExportedModel, own: Path, tmp_path: Path) -> None:
    update_gallery(tmp_path / "gallery", exported, PictureFolder(own), {"en": ["a bat", "a ball"]})
    other = replace(exported, fingerprint="another")
    assert update_gallery(tmp_path / "gallery", other, PictureFolder(own)).captions == {"en": 2}


@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_damaged_parts_are_one_line(exported: ExportedModel, own: Path, tmp_path: Path, damage: str) -> None:
    update_gallery(tmp_path / "gallery", exported, PictureFolder(own), {})
    gallery = Gallery.open(tmp_path / "gallery")
    parts = gallery._parts
    (path,) = parts.folder.glob("*.safetensors")
    path.unlink() if damage == "gone" else path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(RecipeError, match="run `bildwort index --gallery "):
        parts.take([gallery.rows()[0]["digest"]], "vectors")
    with pytest.raises(RecipeError, match="run `bildwort index --gallery "):
        gallery.describe_known("1.png")
