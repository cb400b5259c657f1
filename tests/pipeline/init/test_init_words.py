"""What `init` says: the worst fault of the data, and how pictures without captions become searchable."""

import shlex
from pathlib import Path

import pytest

from data.captions.table import read_captions
from pipeline.engine.workspace import Workspace
from pipeline.graph import Graph
from tests.pipeline.init.own_pictures import COUNT, draw_pictures, made, refused, run, write_tsv
from tests.pipeline.tiny import at

OPTIONS = ("--backbone=built-in", "--translator=none")


def test_the_fault_that_is_found_most_is_told(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    lines = [f"{name}\t{text}\tEin großer Hund läuft am Strand und bellt, zum {k}. Mal\ttrain"
             for k, (name, text) in enumerate(names.items())]  # fmt: skip
    lines[3:13] = [line.removesuffix("train") + split for line in lines[3:13] for split in ("val", "test")][::2]
    lines[20:25] = [line.removesuffix("train") + "test" for line in lines[20:25]]
    table = tmp_path / "mine" / "captions.tsv"
    table.write_text("\n".join(["image\tcaption_de\tcaption_en\tsplit", *lines]), encoding="utf-8")
    line = refused(tmp_path, capsys, "mine", *OPTIONS)
    assert "sentences that seem to be in 'en' (30×: " in line
    assert line.endswith("; are the columns swapped?; correct the data first")
    english = [line.replace("Ein großer Hund läuft am Strand und bellt, zum", "A dog runs fast, at") for line in lines]
    table.write_text("\n".join(["image\tcaption_de\tcaption_en\tsplit", *english]), encoding="utf-8")
    line = refused(tmp_path, capsys, "mine", *OPTIONS)
    assert "sentences that seem to be in 'en' (30×: " in line
    assert "swapped" not in line


def test_pictures_without_captions_are_made_searchable(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    write_tsv(tmp_path / "captions.tsv", dict([*names.items()][:-1]))
    assert run(tmp_path, "init", "mine", "--captions", "captions.tsv", *OPTIONS) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "--pictures" in line]
    command, _, why = line.partition("  # ")
    assert why == "also 1 picture without captions"
    assert shlex.split(command)[-4:] == ["index", "./mine.yaml", "--pictures", str(tmp_path / "mine")]
    write_tsv(tmp_path / "captions.tsv", names)
    assert run(tmp_path, "init", "mine", "--captions", "captions.tsv", *OPTIONS, "--force") == 0
    assert "--pictures" not in capsys.readouterr().out


def test_where_languages_were_detected_the_message_says_so(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    texts = [f"A brown dog runs along the beach in the evening, for the {k}th time" for k in range(len(names))]
    texts[-2:] = ["starší muž v červené košili stojí večer na pláži", "dvě malé děti si spolu hrají na zelené zahradě"]
    write_tsv(tmp_path / "mine" / "captions.tsv", dict(zip(names, texts, strict=True)))
    line = refused(tmp_path, capsys, "mine", *OPTIONS)
    assert "sentences that seem to be in 'cs' (2×: " in line
    assert line.endswith("taken for en: if others are right, name all languages by --languages, else correct the data")
    assert run(tmp_path, "init", "mine", *OPTIONS, "--languages", "en,cs") == 0


LANGUAGES = {
    "en": "a white box {}",
    "de": "ein weißer Kasten {}",
    "fr": "une boîte blanche {}",
    "cs": "bílá krabice {}",
}


@pytest.mark.parametrize("lacking", range(4))
def test_drawn_splits_can_be_tested_in_each_language(lacking: int, tmp_path: Path, capsys) -> None:
    """Cells are empty here and there, of every picture in another language; of Czech nearly all."""
    names = draw_pictures(tmp_path / "mine", 40)
    lines = ["image," + ",".join(f"caption_{code}" for code in LANGUAGES)]
    for number, name in enumerate(names):
        texts = [text.format(number) for text in LANGUAGES.values()]
        texts[(number * 7 + lacking) % 3] = ""
        lines.append(",".join([name, *texts[:3], texts[3] if number == 5 else ""]))
    (tmp_path / "mine" / "captions.csv").write_text("\n".join(lines), encoding="utf-8")
    recipe = made(tmp_path, "mine", "--backbone", "built-in", "--translator", "none")
    assert sorted(recipe.vse.test) == sorted(recipe.vse.select) == ["de", "en", "fr"]
    assert "; so few test pictures cannot tell which model is better" in capsys.readouterr().out
    with at(tmp_path):
        graph = Graph(recipe, Workspace())
        captions = read_captions(graph.workspace.folder(graph.corpus) / "captions.parquet").to_list()
    held_out = {split: {row["language"] for row in captions if row["split"] == split} for split in ("val", "test")}
    assert held_out["val"] >= {"de", "en", "fr"} <= held_out["test"]
    assert len({row["image_id"] for row in captions if row["split"] == "test"}) >= 3


def test_a_wrong_option_of_languages_is_told_as_such(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    texts = [f"A brown dog runs along the beach in the evening, for the {k}th time" for k in range(len(names))]
    write_tsv(tmp_path / "mine" / "captions.tsv", dict(zip(names, texts, strict=True)))
    line = refused(tmp_path, capsys, "mine", *OPTIONS, "--languages", "de")
    assert "taken for de: if others are right, name all languages by --languages" in line


def test_pictures_of_a_form_that_is_not_read_are_told(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    write_tsv(tmp_path / "mine" / "captions.tsv", draw_pictures(tmp_path / "mine", COUNT))
    (tmp_path / "mine" / "IMG_1.HEIC").write_bytes(b"of a phone")
    assert run(tmp_path, "init", "mine", *OPTIONS) == 0
    assert "1 picture of a form that is not read: IMG_1.HEIC; convert them" in " ".join(capsys.readouterr().out.split())


def test_of_a_folder_that_was_moved_the_line_says_where_to_write_the_new_place(tmp_path: Path, capsys) -> None:
    write_tsv(tmp_path / "mine" / "captions.tsv", draw_pictures(tmp_path / "mine", COUNT))
    assert run(tmp_path, "init", "mine", *OPTIONS) == 0
    (tmp_path / "mine").rename(tmp_path / "moved")
    capsys.readouterr()
    assert run(tmp_path, "doctor", "./mine.yaml") == 1
    assert "mine: no such folder, which corpus.root or BILDWORT_DATA names; if it was" in capsys.readouterr().err


def test_an_option_is_told_as_make_takes_it(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tsv(tmp_path / "mine" / "captions.tsv", draw_pictures(tmp_path / "mine", COUNT))
    assert run(tmp_path, "init", "mine", *OPTIONS) == 0
    for level, said in ((None, "replace it with --force"), ("1", "replace it with ARGS=--force")):
        if level:
            monkeypatch.setenv("MAKELEVEL", level)
        capsys.readouterr()
        assert run(tmp_path, "init", "mine", *OPTIONS) == 1
        assert said in capsys.readouterr().err


def test_settings_of_a_command_that_reads_what_was_made_are_said_to_change_nothing(tmp_path: Path, capsys) -> None:
    for words, said in ((["--vse.epochs=3", "--seed=2"], True), (["--seed=2"], False)):
        assert run(tmp_path, "search", "a dog", "--gallery", "gone", *words) == 1
        assert ("--vse.epochs changes nothing here" in capsys.readouterr().err) == said
