"""`bildwort init` reads captions in the forms in which people have them."""

import shutil
from pathlib import Path

import pytest

from tests.pipeline.init.own_pictures import (
    COUNT,
    captions_of,
    draw_pictures,
    made,
    refused,
    run,
    write_coco,
    write_tsv,
)

OPTIONS = "--backbone", "built-in", "--translator", "none"
FORMS = {  # name of the file → its lines, from each picture's name and caption
    "captions.csv": lambda names: ["image,caption", *[f"{name},{text}" for name, text in names.items()]],
    "of spreadsheets.csv": lambda names: [
        "file,text", *[f'"{name}","{text}, ""really"""' for name, text in names.items()],
    ],
    "captions.txt": lambda names: [
        "image,caption", *[f'{name},"{text} {k}, running"' for name, text in names.items() for k in range(5)],
    ],
    "results.csv": lambda names: [
        "image_name| comment_number| comment",
        *[f"{name}| {k}| {text} , number {k} ." for name, text in names.items() for k in range(5)],
    ],
    "Flickr8k.token.txt": lambda names: [f"{name}#{k}\t{text} {k}" for name, text in names.items() for k in range(5)],
    "lists.csv": lambda names: [
        "raw,split,filename",
        *[f'"{[text, text + " again"]}",{["val", "test", "train"][min(2, k)]},{name}'
          for k, (name, text) in enumerate(names.items())],
    ],
    "swapped.tsv": lambda names: [f"{text}\t{name}" for name, text in names.items()],
    "quoted.tsv": lambda names: [f'"{name}"\t"{text}"' for name, text in names.items()],
    "stems.tsv": lambda names: [f"{name[:-4]}\t{text}" for name, text in names.items()],
}  # fmt: skip
EACH = {"captions.txt": 5, "results.csv": 5, "Flickr8k.token.txt": 5, "lists.csv": 2}


@pytest.mark.parametrize("form", FORMS)
def test_captions_as_people_have_them(form: str, tmp_path: Path, capsys) -> None:
    names = draw_pictures(tmp_path / "mine" / "Images", COUNT)
    (tmp_path / "mine" / form).write_text("\n".join(FORMS[form](names)))
    assert run(tmp_path, "init", "mine", *OPTIONS) == 0
    each, separated = EACH.get(form, 1), "CSV" if form.endswith("csv") or form == "captions.txt" else "TSV"
    told = capsys.readouterr().out
    assert f"{COUNT * each} English (detected), {each} a picture" in told
    assert f"found     a {separated} ({form}), {COUNT} pictures" in told
    assert run(tmp_path, "prepare", "./mine.yaml") == 0
    assert captions_of(tmp_path)["images"] == COUNT


@pytest.mark.parametrize("name", ["captions.jsonl", "captions.xlsx"])
def test_a_form_that_is_not_read_is_named(name: str, tmp_path: Path, capsys) -> None:
    captions = draw_pictures(tmp_path / "mine", COUNT)
    (tmp_path / "mine" / name).write_bytes(b"PK\x03\x04\xff")
    line = refused(tmp_path, capsys, "mine", *OPTIONS)
    assert f"(looked at {name}: its form is not read; save it as a CSV or TSV in UTF-8); write a file" in line
    line = refused(tmp_path, capsys, "mine", "--captions", f"mine/{name}", *OPTIONS)
    assert f"{name}: its form is not read; save it as a CSV or TSV in UTF-8; expected `picture TAB caption`" in line
    write_tsv(tmp_path / "mine" / "captions.tsv", captions)
    assert run(tmp_path, "init", "mine", *OPTIONS) == 0  # the other file may stay


@pytest.mark.parametrize("coding", ["utf-16-le", "utf-16-be"])
def test_utf_16_is_told_in_one_line(coding: str, tmp_path: Path, capsys) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    text = "\ufeff" + "".join(f"{name}\tSträucher {text}\n" for name, text in names.items())
    (tmp_path / "mine" / "captions.txt").write_bytes(text.encode(coding))
    line = refused(tmp_path, capsys, "mine", *OPTIONS)
    assert line.endswith("mine/captions.txt: it is UTF-16; expected UTF-8: save it as UTF-8 (`CSV UTF-8` in Excel)")


@pytest.mark.parametrize("separator", [" | ", "; "])
def test_captions_that_seem_to_be_several_in_one_are_told(separator: str, tmp_path: Path, capsys) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    several = {name: f"{text}{separator}{text} again" for name, text in [*names.items()][: COUNT // 2]}
    write_tsv(tmp_path / "mine" / "captions.tsv", names | several)
    assert run(tmp_path, "init", "mine", *OPTIONS) == 0
    assert f"warning   15 of 30 captions hold {separator.strip()!r}; if several" in capsys.readouterr().out
    encoded = {name: f"A &quot;stop&quot; sign of {text}" for name, text in names.items()}
    write_tsv(tmp_path / "mine" / "captions.tsv", encoded | dict([*several.items()][1:]))
    assert run(tmp_path, "init", "mine", *OPTIONS, "--force") == 0
    assert "warning" not in capsys.readouterr().out


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_heading_that_is_not_known_is_told(separator: str, tmp_path: Path, capsys) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    rows = [("Bild", "Beschreibung"), *names.items()]
    (tmp_path / "mine" / "captions.csv").write_text("\n".join(map(separator.join, rows)))
    line = refused(tmp_path, capsys, "mine", *OPTIONS)
    assert "captions.csv:1: no picture 'Bild' in " in line
    assert "or, for a heading, call its columns picture (or image, " in line
    rows = [(name, text, "Ein Hund") for name, text in names.items()]
    (tmp_path / "mine" / "captions.csv").write_text("\n".join(map(separator.join, rows)))
    line = refused(tmp_path, capsys, "mine", *OPTIONS)
    assert "several columns of captions need a header: image, caption_en, caption_de, or" in line
    assert ("picture TAB caption" in line) == (separator == "\t")


@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0)])
def test_a_column_a_language(order: tuple[int, ...], separator: str, tmp_path: Path, capsys) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    whole = [("image", "caption_en", "caption_de"), *[(name, text, "Ein Hund") for name, text in names.items()]]
    rows = [[row[place] for place in order] for row in whole]
    (tmp_path / "mine" / "parallel.tsv").write_text(f"picture\ten\tde\n{next(iter(names))}\ta dog\tein Hund\n")
    (tmp_path / "mine" / "captions.csv").write_text("\n".join(map(separator.join, rows)))
    assert run(tmp_path, "init", "mine", *OPTIONS) == 0
    assert f"{COUNT} English, {COUNT} German, 2 a picture" in capsys.readouterr().out
    assert run(tmp_path, "prepare", "./mine.yaml") == 0
    assert captions_of(tmp_path)["captions"] == 2 * COUNT


GERMAN = "Ein Hund läuft am Strand entlang und bellt, zum {}. Mal"
FRENCH = "Un chien court sur la plage et aboie à côté de la mer, fois {}"


@pytest.mark.parametrize("form", ["captions.{}.tsv", "{}.csv", "captions_{}.txt"])
def test_a_table_a_language(form: str, tmp_path: Path, capsys) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)

    def write(language: str, captions: list[tuple[str, str]]) -> None:
        lines = ["image\tcaption", *(f"{name}\t{text}" for name, text in captions)]
        text = "\n".join(lines).replace("\t", "," if form.endswith("csv") else "\t").replace(", ", " ")
        (tmp_path / "mine" / form.format(language)).write_text(text)

    write("en", [*names.items()] * 2)
    write("de", [(name, GERMAN.format(k)) for k, name in enumerate(names)])
    assert run(tmp_path, "init", "mine", *OPTIONS) == 0
    assert f"{2 * COUNT} English, {COUNT} German, 3 a picture" in capsys.readouterr().out
    assert run(tmp_path, "prepare", "./mine.yaml") == 0
    assert captions_of(tmp_path)["captions"] == 3 * COUNT
    write("fr-CA", [(name, FRENCH.format(k)) for k, name in enumerate(names)])
    assert run(tmp_path, "prepare", "./mine.yaml") == 0  # a further language is another corpus
    assert len([*(tmp_path / "artifacts" / "jobs" / "corpus").glob("*/manifest.json")]) == 2


@pytest.mark.parametrize("other", ["captions.old.tsv", "captions.tsv", "more.de.tsv"])
def test_tables_that_differ_in_more_are_a_choice(other: str, tmp_path: Path, capsys) -> None:
    pictures = draw_pictures(tmp_path / "mine", COUNT)
    for file in ("captions.en.tsv", other):
        write_tsv(tmp_path / "mine" / file, pictures)
    assert refused(tmp_path, capsys, "mine", *OPTIONS).startswith("error: mine: several files have")


def test_a_heading_of_splits_over_rows_without_them(tmp_path: Path, capsys) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    rows = ["image,caption,split", *(f"{name},{text}" for name, text in names.items())]
    (tmp_path / "mine" / "captions.csv").write_text("\n".join(rows))
    assert run(tmp_path, "init", "mine", *OPTIONS) == 0
    assert "no picture is for validation" not in capsys.readouterr().out
    assert run(tmp_path, "prepare", "./mine.yaml") == 0
    assert captions_of(tmp_path)["captions"] == COUNT


def test_numbered_columns_of_captions_before_the_picture(tmp_path: Path, capsys) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    rows = ["caption_1,caption_2,image", *(f"{text},{text} again,{name}" for name, text in names.items())]
    (tmp_path / "mine" / "captions.csv").write_text("\n".join(rows))
    assert run(tmp_path, "init", "mine", *OPTIONS) == 0
    assert f"{2 * COUNT} English (detected" in capsys.readouterr().out
    assert run(tmp_path, "prepare", "./mine.yaml") == 0
    assert captions_of(tmp_path)["captions"] == 2 * COUNT


def test_a_picture_is_named_as_programs_name_it(tmp_path: Path) -> None:
    """By a path from here, of Windows, of a link, and by a whole one; a picture that is called so comes first."""
    folder = tmp_path / "mine" / "my pictures"
    names = draw_pictures(folder, COUNT)
    (folder / "4.png").rename(folder / "my%20four.png")
    called = dict(zip(names, ("./my pictures/0.png", r"my pictures\1.png", "my%20pictures/2.png", f"{folder}/3.png",
                              "my pictures/my%20four.png", r".\my%20pictures\5.png#0"), strict=False))  # fmt: skip
    texts = {called.get(name, f"my pictures/{name}"): text for name, text in names.items()}
    write_tsv(tmp_path / "mine" / "captions.tsv", texts)
    made(tmp_path, "mine", *OPTIONS)
    read = captions_of(tmp_path)
    assert (read["captions"], read["images"]) == (COUNT, COUNT)


def test_lines_of_a_cell_are_captions_and_it_is_said(tmp_path: Path, capsys) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    rows = ["image,caption", *(f'{name},"{text}\n{text} again"' for name, text in names.items())]
    (tmp_path / "mine" / "captions.csv").write_text("\n".join(rows))
    assert run(tmp_path, "init", "mine", *OPTIONS) == 0
    told = capsys.readouterr().out
    assert f"{2 * COUNT} English (detected), 2 a picture" in told
    assert f"warning   {COUNT} cells of captions hold several lines, each read as a caption; if a caption was" in told


def test_a_table_of_another_encoding_is_told_in_few_lines(tmp_path: Path, capsys) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    write_tsv(tmp_path / "mine" / "captions.tsv", names)
    text = (tmp_path / "mine" / "captions.tsv").read_text().replace("\t", "\tÜber ")
    (tmp_path / "mine" / "captions.tsv").write_bytes(text.encode("cp1252"))
    told = bad_lines(tmp_path, capsys, "mine")
    assert len(told) == 3
    assert told[2].endswith(
        f"convert the file to UTF-8 (`CSV UTF-8` in Excel) (and {COUNT - 3} more lines with this fault)"
    )


def test_a_number_sign_in_the_name_of_a_picture(tmp_path: Path, capsys) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    for name in names:
        (tmp_path / "mine" / name).rename(tmp_path / "mine" / f"Scan #{name}")
    write_tsv(tmp_path / "mine" / "captions.tsv", {f"Scan #{name}": text for name, text in names.items()})
    assert run(tmp_path, "init", "mine", *OPTIONS) == 0
    assert "30 English (detected), 1 a picture" in capsys.readouterr().out


def test_a_number_behind_a_number_sign_may_be_part_of_a_name_without_its_ending(tmp_path: Path) -> None:
    names = draw_pictures(tmp_path / "mine" / "jpegs", COUNT)
    for place, name in enumerate(names):
        (tmp_path / "mine" / "jpegs" / name).rename(tmp_path / "mine" / "jpegs" / f"pic#{place}.png")
    write_tsv(tmp_path / "mine" / "captions.tsv", {f"pic#{place}": text for place, text in enumerate(names.values())})
    assert made(tmp_path, "mine", *OPTIONS).corpus.options.pictures == "jpegs"
    assert captions_of(tmp_path)["images"] == COUNT


def test_a_name_that_pictures_of_two_folders_have_is_refused(tmp_path: Path, capsys) -> None:
    mine = tmp_path / "mine"
    names = draw_pictures(mine / "a", COUNT)
    (mine / "b").mkdir()
    (mine / "b" / "7.png").write_bytes((mine / "a" / "7.png").read_bytes())
    write_tsv(mine / "captions.tsv", names)
    assert run(tmp_path, "init", "mine", *OPTIONS) == 0  # either file is the same picture
    (tmp_path / "mine.yaml").unlink()
    (mine / "b" / "7.png").write_bytes((mine / "a" / "8.png").read_bytes())
    advice = "name each picture with its folder, or run init on one folder, with --captions and this file"
    line = f"mine/captions.tsv: picture 7{{}} may be a/7.png or b/7.png; {advice}"
    assert refused(tmp_path, capsys, "mine", *OPTIONS) == f"error: {line.format('.png')}"
    write_tsv(mine / "captions.tsv", {name.removesuffix(".png"): text for name, text in names.items()})
    assert refused(tmp_path, capsys, "mine", *OPTIONS) == f"error: {line.format('')}"
    write_tsv(mine / "captions.tsv", {f"a/{name}": text for name, text in names.items()})
    assert made(tmp_path, "mine", *OPTIONS).corpus.options.pictures == "."


def test_a_text_beside_each_picture_and_texts_in_a_folder_of_their_own(tmp_path: Path, capsys) -> None:
    names = draw_pictures(tmp_path / "mine" / "holiday", COUNT)
    for name, text in names.items():
        (tmp_path / "mine" / "holiday" / name).with_suffix(".txt").write_text(f"{text}\n{text} again\n")
    (tmp_path / "mine" / "holiday" / "of nothing.txt").write_text("no picture has this name")
    recipe = made(tmp_path / "work", str(tmp_path / "mine"), *OPTIONS)
    assert (recipe.corpus.options.captions, recipe.corpus.options.pictures) == (".", ".")
    told = capsys.readouterr().out
    assert "found     a text a picture, 30 pictures with captions" in told
    assert "60 English (detected), 2 a picture" in told
    assert "left out  1 text named as no picture: holiday/of nothing.txt" in told
    assert captions_of(tmp_path / "work")["captions"] == 2 * COUNT
    (tmp_path / "mine" / "texts").mkdir()
    for path in (tmp_path / "mine" / "holiday").glob("*.txt"):
        path.rename(tmp_path / "mine" / "texts" / path.name)
    texts = str(tmp_path / "mine" / "texts")
    for work, more in (("apart", ()), ("named", ("--captions", texts))):
        recipe = made(tmp_path / work, str(tmp_path / "mine"), *more, *OPTIONS)
        assert (recipe.corpus.options.captions, recipe.corpus.options.pictures) == ("texts", "holiday")
        assert captions_of(tmp_path / work)["captions"] == 2 * COUNT
    shutil.copytree(texts, tmp_path / "mine" / "texte")
    line = refused(tmp_path / "both", capsys, str(tmp_path / "mine"), *OPTIONS)
    assert (
        "several folders have texts named as the pictures: texte, texts; choose one by --captions FOLDER (init)" in line
    )


def test_texts_that_are_no_captions(tmp_path: Path, capsys) -> None:
    """Boxes beside the pictures, as some detectors want them; a file of captions comes before all texts."""
    mine, work = tmp_path / "mine", tmp_path / "work"
    names = draw_pictures(mine, COUNT)
    for name in names:
        (mine / name).with_suffix(".txt").write_text("0 0.5 0.5 0.2 0.1\n")
    assert "texts named as pictures, but without words" in refused(work, capsys, str(mine))
    (tmp_path / "empty").mkdir()
    assert "no text in it is named as a picture" in refused(
        work, capsys, str(mine), "--captions", str(tmp_path / "empty")
    )
    write_tsv(mine / "captions.tsv", names)
    assert made(work, str(mine), *OPTIONS).corpus.options.captions == "captions.tsv"


def bad_lines(work: Path, capsys, *words: str) -> list[str]:
    """The lines of the error that `init` says."""
    capsys.readouterr()
    assert run(work, "init", *words, *OPTIONS) == 1
    assert not list(work.glob("*.yaml"))
    lines = capsys.readouterr().err.strip().splitlines()
    assert all(line.startswith("error: ") for line in lines)
    return [line.removeprefix("error: ") for line in lines]


@pytest.mark.parametrize(("separator", "ending"), [("\t", "tsv"), (",", "csv")])
def test_all_bad_lines_are_told_in_one_run(separator: str, ending: str, tmp_path: Path, capsys) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    rows = [["image", "caption"], *map(list, names.items())]
    rows[3][0], rows[5][1:], rows[8][1:] = "gone.png", [], ["a dog", "on the beach"]
    text = "".join(separator.join(row) + "\n" for row in rows).encode() + b"29.png" + separator.encode() + b"\xfc\n"
    path = tmp_path / "mine" / f"captions.{ending}"
    path.write_bytes(text)
    told = bad_lines(tmp_path, capsys, "mine")
    assert [line.removeprefix(f"{tmp_path.resolve()}/mine/captions.{ending}:")[:14] for line in told] == [
        "32: not UTF-8 ", "4: no picture ", "6: 1 fields, e", "9: 3 fields, e",
    ]  # fmt: skip
    comma = "picture COMMA caption; write a text with commas in quotation marks"  # as the heading has it
    assert all(line.endswith({"csv": comma, "tsv": "picture TAB caption"}[ending]) for line in told[2:])


def test_a_first_line_that_is_bad_hides_no_other(tmp_path: Path, capsys) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    lines = [f"{name}\ten\t{text}\ttrain" for name, text in names.items()]
    lines[0], lines[4], lines[7] = "0.png\ten", f"{lines[4]}\tmore", lines[7].replace("\ten\t", "\tEnglisch\t")
    lines[9] = lines[9].replace("train", "later")
    (tmp_path / "mine" / "captions.tsv").write_text("\n".join(lines))
    told = bad_lines(tmp_path, capsys, "mine")
    assert [line.partition("captions.tsv:")[2].partition(",")[0] for line in told] == [
        "1: 2 fields", "5: 5 fields", "8: language 'Englisch'", "10: split 'later'",
    ]  # fmt: skip


def test_missing_pictures_of_json_and_of_metadata_are_told_together(tmp_path: Path, capsys) -> None:
    mine = tmp_path / "mine"
    names = draw_pictures(mine, COUNT)
    write_coco(mine / "captions.json", names | {f"gone{number}.png": "The dog is away" for number in range(12)})
    told = bad_lines(tmp_path, capsys, "mine")
    assert [line.partition("annotations[")[2][:2] for line in told[:3]] == ["60", "62", "64"]
    assert (len(told), told[10]) == (11, "2 more lines do not fit")
    (mine / "captions.json").unlink()
    rows = [f"{name},{text}" for name, text in {**names, "gone.png": "The dog is away", "lost.png": "A cat"}.items()]
    (mine / "metadata.csv").write_text("\n".join(["file_name,caption", *rows]))
    told = bad_lines(tmp_path, capsys, "mine")
    assert [line.partition(": ")[2].partition(" of")[0] for line in told] == ["row 30", "row 31"]
    (mine / "metadata.csv").write_text("\n".join(["file_name,caption", *rows[:20], "1.png,a,b", "2.png"]))
    assert [line.partition(" cells")[0].rpartition(":")[0].rpartition("csv:")[2]
            for line in bad_lines(tmp_path, capsys, "mine")] == ["22", "23"]  # fmt: skip


def test_columns_of_languages_with_a_region_are_read_and_others_are_named(tmp_path: Path, capsys) -> None:
    names = draw_pictures(tmp_path / "mine", COUNT)
    lines = ["image,caption_ja,caption_zh-TW,url", *[f"{name},左に青い箱,左邊有箱子,http://a" for name in names]]
    (tmp_path / "mine" / "captions.csv").write_text("\n".join(lines), encoding="utf-8")
    assert run(tmp_path, "init", "mine", *OPTIONS) == 0
    told = capsys.readouterr().out
    assert f"captions  {COUNT} Japanese, {COUNT} Chinese, 2 a picture" in told
    assert "left out  1 column without captions, by the heading: url" in told
