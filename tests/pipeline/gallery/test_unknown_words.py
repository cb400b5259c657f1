"""What search says of unknown words and of the language of a query, in the shell, in JSON and as data."""

import json
from pathlib import Path

from pipeline.export.exported_model import ExportedModel
from pipeline.gallery.gallery import Gallery
from pipeline.gallery.hits import ARBITRARY
from tests.pipeline.tiny import Tiny


def test_unknown_words_and_the_language_of_a_query_are_said_and_are_data(
    used: Tiny, exported: ExportedModel, tmp_path: Path, capsys
) -> None:
    gallery = Gallery.open(used.workspace.root / "tiny" / "gallery", exported)
    assert gallery.search("a red bat").reading.note == ""
    for quoted in ('"a red bat"', "'a red bat'", "a ‘red’ bat"):
        assert gallery.search(quoted).reading.note == ""
    assert gallery.search("a red bat " * 34).reading.note == "this is too long: the model reads only its beginning"
    hits = gallery.search("ein kleiner Fuchs am Strand", 3)
    reading = hits.reading
    assert (len(hits), reading.words, reading.languages, reading.read_as) == (3, 5, ("en",), "en")
    assert (reading.language, reading.known) == ("de", False)
    note = "5 of 5 words unknown: ein, kleiner, Fuchs, am, Strand; this looks like German; this model reads English"
    assert hits.notes == [note, ARBITRARY]
    assert gallery.search("a red qwertz", 3, "en").reading.unknown == ("qwertz",)
    capsys.readouterr()
    sheet = tmp_path / "sheet.html"
    assert used.main("search", "ein kleiner Fuchs am Strand", "--top", "3", "--sheet", str(sheet)) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 3
    *said, written = printed.err.splitlines()
    assert (said, written.split()[0]) == ([note, ARBITRARY], "written")
    assert f"<p>{ARBITRARY}</p>" in sheet.read_text()
    (tmp_path / "some.txt").write_text("a red bat\nqwertz uiop\n")
    assert used.main("search", "--queries", str(tmp_path / "some.txt")) == 0
    printed = capsys.readouterr()
    assert "qwertz uiop ?" in printed.out
    assert "qwertz uiop: 2 of 2 words unknown: qwertz, uiop; this model reads English" in printed.err.splitlines()
    assert used.main("search", "--queries", str(tmp_path / "some.txt"), "--json") == 0
    printed = capsys.readouterr()
    first, second = map(json.loads, printed.out.splitlines())
    assert (first["language"], first["words"], first["unknown"]) == ("en", 3, [])
    assert (second["language"], second["read_as"], second["unknown"]) == (None, "en", ["qwertz", "uiop"])
    assert ARBITRARY in second["notes"]
    assert printed.err == ""
