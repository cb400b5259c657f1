"""`embed` and `ExportedModel.encode`: vectors of captions and pictures as files; stopped and continued; bad input."""

import csv
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from PIL import Image

from data.vectors.vector_files import Part, ids_of
from modules.retrieval_models.base import MODELS
from pipeline.embedding.embed import embed
from pipeline.embedding.items import CaptionLines, Pictures
from pipeline.errors import RecipeError
from pipeline.export.exported_model import ExportedModel
from tests.pipeline.tiny import Tiny

TEXTS = [f"a {colour} {thing}" for colour in ("red", "blue", "small", "green") for thing in ("bat", "ball", "box")]


@pytest.fixture
def captions(tmp_path: Path) -> Path:
    path = tmp_path / "captions.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    return path


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of few items."""
    monkeypatch.setattr(CaptionLines, "size", 5)
    monkeypatch.setattr(Pictures, "size", 4)


def _vectors(path: Path) -> np.ndarray:
    return np.stack(pd.read_parquet(path)["vector"])


def test_encode_is_what_the_other_encoders_give(exported: ExportedModel, own: Path) -> None:
    vectors = exported.encode(TEXTS, "en")
    assert vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, exported.encode_captions(TEXTS, "en").single())
    paths = sorted(own.glob("*.png"))
    np.testing.assert_allclose(exported.encode(paths), exported.encode_pictures(paths).single(), atol=1e-6)
    np.testing.assert_allclose(exported.encode([Image.open(paths[0])])[0], exported.encode(paths)[0], atol=1e-6)
    assert exported.encode([]).shape == (0, vectors.shape[1])


def test_pictures_are_encoded_in_batches(exported: ExportedModel, own: Path, monkeypatch) -> None:
    paths, read = sorted(own.glob("*.png")), []
    whole, encode = exported.encode(paths), ExportedModel.encode_pictures
    monkeypatch.setattr("pipeline.export.exported_model._BATCH", 4)
    monkeypatch.setattr(
        ExportedModel, "encode_pictures", lambda self, some: (read.append(len(some)), encode(self, some))[1]
    )
    np.testing.assert_allclose(exported.encode(paths), whole, atol=1e-5)
    assert read == [4, 2]


def test_encode_refuses_a_mixture(exported: ExportedModel, own: Path) -> None:
    for items, language in (([*TEXTS, own / "0.png"], None), ([own / "0.png"], "en")):
        with pytest.raises(RecipeError, match="captions, or pictures"):
            exported.encode(items, language)
    with pytest.raises(RecipeError, match="was trained on en; choose"):
        exported.encode(TEXTS, "xx")
    for one in ("a red bat", own / "0.png"):  # a text would be encoded character by character
        with pytest.raises(RecipeError, match="expected a list"):
            exported.encode(one)


@pytest.mark.usefixtures("small")
def test_captions_to_parquet(exported: ExportedModel, captions: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.parquet"
    embed(exported, CaptionLines(captions, None), output)
    frame = pd.read_parquet(output)
    assert list(frame) == ["id", "vector", "model"]
    assert list(frame["id"]) == [str(number) for number in range(1, 13)]
    assert set(frame["model"]) == {f"{exported.name} {exported.fingerprint}"}
    np.testing.assert_allclose(_vectors(output), exported.encode(TEXTS), atol=1e-5)
    assert pq.ParquetFile(output).num_row_groups == 3
    assert not output.with_name("out.parquet.partial").exists()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("ending", [".npy", ".csv", ".parquet"])
def test_a_part_without_a_readable_picture_is_left_out(exported: ExportedModel, own: Path, tmp_path, ending) -> None:
    for number in (8, 9):  # two parts of four are before them
        (own / f"{number}.png").write_text("no picture")
    for number in (6, 7):
        shutil.copyfile(own / "0.png", own / f"{number}.png")
    embed(exported, Pictures(own, 1), output := tmp_path / f"out{ending}")
    read = {".npy": np.load, ".csv": pd.read_csv, ".parquet": pd.read_parquet}[ending]
    assert len(read(output)) == 8


@pytest.mark.usefixtures("small")
def test_pictures_to_npy_leave_out_what_cannot_be_read(exported: ExportedModel, own: Path, tmp_path, capsys) -> None:
    (own / "2.png").write_text("no picture")
    shutil.copytree(own, own / "more")
    for name in ("0.txt", "captions.csv", "phone.HEIC"):
        (own / name).write_text("a red ball")
    (own / "away.png").symlink_to("/etc/passwd")
    output = tmp_path / "out.npy"
    embed(exported, Pictures(own, 1), output)
    names = ids_of(output).read_text().splitlines()
    assert names == [f"{place}{n}.png" for place in ("", "more/") for n in (0, 1, 3, 4, 5)]
    np.testing.assert_allclose(np.load(output), exported.encode([own / name for name in names]), atol=1e-5)
    said = capsys.readouterr().out
    assert "left out: more/2.png: not a readable picture" in said
    assert "left out: phone.HEIC: not a picture by its name" in said
    assert "left out: away.png: a link out of the folder" in said
    assert ".txt" not in said
    assert ".csv" not in said
    assert "10 vectors, 4 left out" in said


@pytest.mark.usefixtures("small")
def test_models_whose_captions_are_joined_heads_give_the_joined_vector(exported, captions, tmp_path) -> None:
    sizes = {
        "region_dim": exported.model.input_dim, "vocabulary_size": exported.model.vocabulary_size,
        "languages": exported.model.languages, "dim": 8, "word_dim": 8,
    }  # fmt: skip
    joined = replace(exported, model=MODELS["diverse-attention"](heads=3, **sizes).eval())
    embed(joined, CaptionLines(captions, "en"), tmp_path / "out.npy")
    assert np.load(tmp_path / "out.npy").shape == (12, 24)
    apart = replace(exported, model=MODELS["scan-t2i-avg"](**sizes))
    with pytest.raises(RecipeError, match="no single vectors"):
        embed(apart, CaptionLines(captions, "en"), tmp_path / "other.npy")
    with pytest.raises(RecipeError, match="no single vectors"):
        apart.encode(TEXTS)


def _stop_at(monkeypatch: pytest.MonkeyPatch, event: int) -> list[Path]:
    """Stop before the file or folder number `event` that is renamed or deleted; those that came before."""
    seen: list[Path] = []

    def wrapped(name: str) -> None:
        do = getattr(Path, name)

        def act(path: Path, *more: object, **options: object) -> object:
            if ".partial" in str(path):
                if len(seen) == event:
                    raise KeyboardInterrupt
                seen.append(path)
            return do(path, *more, **options)

        monkeypatch.setattr(Path, name, act)

    for name in ("replace", "unlink", "rmdir"):
        wrapped(name)
    return seen


@pytest.mark.usefixtures("small")
def test_a_csv_has_a_column_for_each_number(exported: ExportedModel, captions: Path, tmp_path: Path) -> None:
    for ending in ("csv", "npy"):
        embed(exported, CaptionLines(captions, "en"), tmp_path / f"out.{ending}")
    expected = np.load(tmp_path / "out.npy")
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == ids_of(tmp_path / "out.npy").read_text().split()
    assert list(rows[0]) == ["id", "model", *(f"v{number + 1}" for number in range(expected.shape[1]))]
    found = np.array([[row[f"v{number + 1}"] for number in range(expected.shape[1])] for row in rows], np.float32)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.whole
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("ending", [".parquet", ".csv", ".npy"])
@pytest.mark.parametrize("force", [False, True])
def test_stopped_anywhere_and_run_again(exported, captions, tmp_path, ending: str, force: bool) -> None:
    """At every rename and every deletion: no row is lost, none is there twice."""
    whole, output = tmp_path / f"whole{ending}", tmp_path / f"out{ending}"
    embed(exported, CaptionLines(captions, "en"), whole)
    for event in range(100):
        for path in tmp_path.glob("out*"):
            path.unlink()
        if force:
            embed(exported, CaptionLines(captions, None), output)
        with pytest.MonkeyPatch.context() as patch:
            _stop_at(patch, event)
            try:
                embed(exported, CaptionLines(captions, "en"), output, force)
                break
            except KeyboardInterrupt:
                pass
        try:
            embed(exported, CaptionLines(captions, "en"), output, force)
        except RecipeError:  # all was done but for an empty folder
            (tmp_path / f"out{ending}.partial").rmdir()
        assert output.read_bytes() == whole.read_bytes()
        if ending == ".npy":
            assert ids_of(output).read_text() == ids_of(whole).read_text()
        assert not (tmp_path / f"out{ending}.partial").exists()
    assert event > 9


@pytest.mark.usefixtures("small")
def test_what_is_done_is_not_encoded_again(exported, captions, tmp_path, monkeypatch) -> None:
    _half_done(exported, captions, tmp_path / "out.npy", monkeypatch)
    encoded, encode = [], ExportedModel.encode
    monkeypatch.setattr(
        ExportedModel, "encode", lambda self, some, *more: (encoded.extend(some), encode(self, some, *more))[1]
    )
    embed(exported, CaptionLines(captions, "en"), tmp_path / "out.npy")
    assert encoded == TEXTS[5:]


def _half_done(exported, captions: Path, output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One part of three is there."""
    parts = CaptionLines.parts

    def one(self, exported: ExportedModel, done: int) -> Iterator[Part]:
        yield next(iter(parts(self, exported, done)))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(CaptionLines, "parts", one)
        with pytest.raises(KeyboardInterrupt):
            embed(exported, CaptionLines(captions, "en"), output)


@pytest.mark.usefixtures("small")
def test_another_model_or_input_does_not_continue_an_unfinished_output(
    exported, captions, tmp_path, monkeypatch
) -> None:
    output = tmp_path / "out.parquet"
    _half_done(exported, captions, output, monkeypatch)
    refused = pytest.raises(RecipeError, match=r"out\.parquet\.partial: an unfinished output of another model or input")
    with refused:
        embed(replace(exported, fingerprint="other"), CaptionLines(captions, "en"), output)
    with refused:
        embed(exported, CaptionLines(captions, None), output)
    captions.write_text(captions.read_text() + "a bat\n")
    with refused:
        embed(exported, CaptionLines(captions, "en"), output, force=True)


@pytest.mark.usefixtures("small")
def test_captions_that_change_while_they_are_read_are_refused(exported, captions, tmp_path, monkeypatch) -> None:
    parts = CaptionLines.parts

    def changed(self, exported: ExportedModel, done: int) -> Iterator[Part]:
        yield from parts(self, exported, done)
        captions.write_text(captions.read_text().replace("bat", "bow"))

    monkeypatch.setattr(CaptionLines, "parts", changed)
    with pytest.raises(RecipeError, match="changed while it was read"):
        embed(exported, CaptionLines(captions, "en"), tmp_path / "out.npy")
    assert not (tmp_path / "out.npy").exists()


def test_without_one_readable_picture_there_is_no_output(exported: ExportedModel, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "a.png").write_text("no picture")
    with pytest.raises(RecipeError, match=r"none of 1 pictures can be read \(a\.png: not a readable picture"):
        embed(exported, Pictures(tmp_path / "own", 1), tmp_path / "out.npy")
    assert not [path for path in tmp_path.glob("out.npy*") if path.suffix != ".lock"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give --pictures FOLDER or --captions FILE"), (("--captions", "a", "--pictures", "b"), "one of the two"),
        (("--pictures", "{}/none"), "no pictures in it; expected files like"),
        (("--pictures", "{}/gone"), "no such folder"), (("--captions", "{}/gone"), "no such file"),
        (("--captions", "{}/empty.txt"), "no captions; expected a caption a line"),
        (("--captions", "{}/gap.txt"), "gap.txt:2: the caption is empty; leave the line out"),
        (("--captions", "{}/latin.txt"), "latin.txt:2: not UTF-8"),
        (("--captions", "{}/good.txt", "--language", "xx"), "language 'xx': the model"),
        (("--pictures", "{}/none", "--language", "en"), "is for captions"),
        (("--captions", "{}/good.txt", "--output", "{}/old.npy"), "old.npy: exists; choose another --output"),
        (("--captions", "{}/two.csv", "--output", "{}/two.csv", "--force"), "is read too"),
        (("--captions", "{}/two.ids.txt", "--output", "{}/two.npy", "--force"), "is read too"),
        (("--captions", "{}/good.txt", "--output", "{}/out.txt"), "ends in .parquet, .csv or .npy"),
        (("--captions", "{}/good.txt", "--output", "{}/good.txt/out.npy"), "good.txt is no folder"),
        (("--captions", "{}/good.txt", "--model", "{}/none"), "no exported model here"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(used: Tiny, tmp_path: Path, arguments: tuple[str, ...], said: str, capsys) -> None:
    (tmp_path / "none").mkdir()
    (tmp_path / "old.npy").touch()
    for name, content in (("empty", b""), ("gap", b"a\n \na\n"), ("latin", b"a\n\xe9\n"), ("good", b"a bat\n")):
        (tmp_path / f"{name}.txt").write_bytes(content)
    for name in ("two.csv", "two.ids.txt"):
        (tmp_path / name).write_text("a bat\n")
    capsys.readouterr()
    output = () if "--output" in arguments else ("--output", f"{tmp_path}/out.npy")
    assert used.main("embed", *(one.format(tmp_path) for one in arguments), *output) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error
    assert not (tmp_path / "out.npy.partial").exists()
    assert {(tmp_path / name).read_text() for name in ("two.csv", "two.ids.txt")} == {"a bat\n"}


def test_the_command_replaces_with_force(used: Tiny, captions: Path, tmp_path: Path) -> None:
    command = ("embed", "--captions", str(captions), "--output", str(tmp_path / "out.parquet"))
    assert used.main(*command) == 0
    before = (tmp_path / "out.parquet").read_bytes()
    assert used.main(*command) == 1
    assert used.main(*command, "--force") == 0
    assert (tmp_path / "out.parquet").read_bytes() == before


@pytest.mark.slow
def test_a_killed_process_is_continued(used: Tiny, tmp_path: Path) -> None:
    """SIGKILL after some parts; the same command ends with all rows, each once, in their order."""
    path, output = tmp_path / "many.txt", tmp_path / "out.parquet"
    path.write_text("".join(f"{text}\n" for text in TEXTS * 4000))
    command = ("embed", "--captions", str(path), "--language", "en", "--output", str(output))
    process = used.start(*command)
    while process.poll() is None and len(list(tmp_path.glob("out.parquet.partial/0*"))) < 3:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not output.exists()
    assert used.main(*command) == 0
    frame = pd.read_parquet(output)
    assert list(frame["id"]) == [str(number) for number in range(1, 48_001)]
    exported = ExportedModel.load(used.workspace.root / "tiny" / "model")
    np.testing.assert_allclose(_vectors(output), np.tile(exported.encode(TEXTS, "en"), (4000, 1)), atol=1e-5)


def test_captions_without_a_known_word_are_named_after_a_stop_too(
    exported: ExportedModel, tmp_path: Path, small: None, capsys
) -> None:
    path, output = tmp_path / "some.txt", tmp_path / "some.npy"
    path.write_text("".join(f"{text}\n" for text in ["a red bat", "qwertz uiop", *TEXTS[:4], "犬", "a qwertz"]))
    items = CaptionLines(path, "en")
    embed(exported, items, output)
    assert np.load(output).shape[0] == 8
    said = "the model knows no word of 2 captions, so their vectors are arbitrary: line 2, 7"
    assert said in capsys.readouterr().out
