"""The report: what was run becomes rows and tables, what was not says so, and figures outlive their artifacts."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from data.captions.table import Caption, table_of
from pipeline.cli import main
from pipeline.engine.workspace import Workspace
from pipeline.errors import RecipeError
from pipeline.graph import Graph
from pipeline.recipes.loading import load_recipe, variant_of
from pipeline.reporting import opening
from pipeline.reporting.opening import trained_on
from pipeline.reporting.paper_tables import variants_of
from pipeline.reporting.records import add_records
from pipeline.reporting.records import variant_of as variant_of_job
from pipeline.reporting.report import report
from pipeline.reporting.results import Mean
from pipeline.translation.augment import diversity
from tests.pipeline.reporting.finished import OVERRIDES, arrays, finish, record, scores


def test_tables_average_seeds_and_say_what_was_not_run(here, tmp_path, capsys):
    recipe = load_recipe("scenes", OVERRIDES)
    rows = [row for row in Graph(recipe, here).rows if row.name == "none"]
    for row, value, rank in zip(rows, (40.0, 60.0), (1, 2), strict=True):
        finish(here, row.job, {"test": {"en": scores(value)}}, [("en", arrays(rank))])
    finish(here, Graph(recipe, here).translators["mt-en-de"], {"test_bleu": 31.5, "bleu_signature": "nrefs:1"})
    report(Graph(recipe, here))
    text = (here.root / "scenes/report/report.md").read_text()
    line = next(line for line in text.splitlines() if line.startswith("| none |") and "50.0" in line)
    assert line.endswith("| 2 (sd 14.1) |")  # 40 and 60
    assert next(line for line in text.splitlines() if line.startswith("| human-de |")).count("not run") == 1
    assert "| none (not trained on de) | not run |" in text
    assert "| mt-en-de | – | 31.5 |" in text
    assert "| mmt-en-de | not run |" in text
    found = [json.loads(line) for line in (here.root / "scenes/report/results.jsonl").read_text().splitlines()]
    recall = next(row for row in found if row["source"] == "none" and row["metric"] == "mean_recall")
    assert (recall["value"], recall["seeds"], recall["n"], recall["language"]) == (50.0, 2, 3, "en")
    assert recall["low"] <= recall["high"]
    assert {row["metric"] for row in found if row["system"] == "mt"} == {"bleu"}


def test_each_signature_of_bleu_is_shown_with_its_languages(here, capsys):
    recipe = load_recipe("scenes", [*OVERRIDES, "--mmt.directions=[en-de,de-en,en-ja]"])
    translators = Graph(recipe, here).translators
    signatures = {"mt-en-ja": "tok:char", "mt-en-de": "tok:13a", "mmt-de-en": "tok:13a"}
    for name, signature in signatures.items():
        finish(here, translators[name], {"test_bleu": 31.5, "bleu_signature": signature})
    report(Graph(recipe, here))
    lines = (here.root / "scenes/report/report.md").read_text().splitlines()
    assert sorted(line for line in lines if line.startswith("- BLEU")) == [
        "- BLEU into German, English: tok:13a; tokenised: Moses, lower-cased",
        "- BLEU into Japanese: tok:char; tokenised: Moses, lower-cased",
    ]


@pytest.mark.parametrize(
    ("sources", "kind"),
    [({"human"}, None), ({"human", "mt:en-de"}, "Translated captions"), ({"text:mt:en-de"}, "Translated captions"),
     ({"text:tatoeba"}, "Sentences without pictures")],
)  # fmt: skip
def test_rows_are_called_by_who_wrote_what_they_read(sources: set[str], kind: str | None) -> None:
    assert opening._kind(sources) == kind


def test_the_report_begins_with_what_it_says_and_ends_with_how_figures_are_computed(here, capsys):
    recipe = load_recipe("scenes", ["--vse.only=[none,mt-f,mmt-f]", "--vse.seeds=[1,2,3]", "--vse.test=[en]"])
    ranks = {"none": (1, 3, 2), "mt-f": (1, 2, 3), "mmt-f": (1, 1, 1)}
    for row in Graph(recipe, here).rows:
        of_image = np.array(ranks[row.name] * 40)
        files = {"text_to_image": of_image, "image_to_text": of_image, "caption_image": np.arange(120)}
        first = 100 * float(np.mean(of_image == 1))
        of_test = scores(first) | {"val_rsum": first}
        finish(here, row.job, {"test": {"en": of_test}, "val": {"en": {"rsum": first}}}, [("en", files)])
    finish(here, Graph(recipe, here).translators["mt-en-de"], {"test_bleu": 31.5, "bleu_signature": "nrefs:1"})
    report(Graph(recipe, here))
    folder = here.root / "scenes/report"
    text, page = (folder / "report.md").read_text(), (folder / "report.html").read_text()
    lines = text.splitlines()
    assert lines[0] == "# scenes"
    said = [line for line in lines if line.startswith("- ")]
    assert said[0] == (
        "- English: mmt-f (san) is the best of 3 rows on validation; it finds the right picture first for 100.0 of 100 "
        "captions among 120 test images, where guessing finds 0.8 of 100; its mean recall is 100.0 % (100.0 … 100.0), "
        "by guessing at most 4.4 %."
    )
    assert "Translated captions, English, beside none: mt-f +0.0 (" in said[1]
    assert said[1].endswith("points; mmt-f helps.")
    assert said[2].startswith("- Read with care: ")
    assert (
        "- mmt-f: English captions by people; German captions by mmt looking at the picture (English → German)" in said
    )
    assert text.index("mmt-f: English") < text.index("| mt-en-de |") < text.index("nrefs:1")
    assert page.index("mmt-f (san) is the best") < page.index("<dt>mmt-f</dt>") < page.index("nrefs:1")
    assert "mmt-f (san) is the best" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([], "nothing: a pretrained network as it is"),
        (["2*en/human + de/mt:en-de"], "2 English captions by people with German captions by mt (English → German)"),
        (["en/human + 0*de/human"], "English captions by people"),
        (["en/mmt:en-de-en"], "English captions by mmt looking at the picture (English → German → English)"),
        (["de/mt:en-de@fits"], "German captions by mt (English → German, fits)"),
        (["de/caption:de"], "German captions written from the picture"),
        (["de/text:tatoeba"], "sentences without pictures: German sentences of tatoeba"),
        (["de/text:mt:en-de"], "sentences without pictures: German captions by mt (English → German)"),
    ],
)
def test_what_a_row_is_trained_on_in_words(groups, expected):
    assert trained_on(groups) == expected


def test_intervals_of_one_seed_say_that_they_are_over_images_only(here, capsys):
    recipe = load_recipe("scenes", ["--vse.only=[none,human-de]", "--vse.seeds=[1]", "--vse.test=[en]"])
    for row, rank in zip(Graph(recipe, here).rows, (1, 2), strict=True):
        finish(here, row.job, {"test": {"en": scores(50.0 * rank)}}, [("en", arrays(rank))])
    report(Graph(recipe, here))
    shown = " ".join(capsys.readouterr().out.split())
    pages = [(here.root / "scenes/report" / name).read_text() for name in ("report.md", "report.html")]
    assert all("over seeds where there are several; one seed: images only" in text for text in (shown, *pages))
    lines = pages[0].splitlines()
    assert next(line for line in lines if line.startswith("| none | 50.0")).endswith(" | – | 1 (images only) |")
    assert next(line for line in lines if line.startswith("| human-de − none |")).endswith("| +50.00 (images only) |")


def test_ranks_of_another_test_are_one_line(here) -> None:
    recipe = load_recipe("scenes", OVERRIDES)
    rows = [row for row in Graph(recipe, here).rows if row.name == "none"]
    other = {"text_to_image": np.full(4, 1), "image_to_text": np.full(2, 1), "caption_image": np.repeat([0, 1], 2)}
    for row, ranks in zip(rows, (arrays(1), other), strict=True):
        finish(here, row.job, {"test": {"en": scores(40.0)}}, [("en", ranks)])
    folder = here.folder(rows[1].job)
    with pytest.raises(
        RecipeError, match=f"^{folder}: ranks of en are of another test than those of .*; delete"
    ) as one:
        report(Graph(recipe, here))
    assert "\n" not in str(one.value)


def test_only_what_has_an_interval_says_what_it_is_over():
    assert Mean([40.0, 60.0], (1.0, 2.0)).seeds() == "2 (sd 14.1)"
    assert Mean([40.0], (1.0, 2.0)).seeds("pairs") == "1 (pairs only)"
    assert Mean([40.0]).seeds() == "1"


def test_a_recipe_may_refuse_to_test_a_language_that_a_row_never_saw(here):
    recipe = load_recipe("scenes", [*OVERRIDES, "--vse.unseen=error"])
    with pytest.raises(RecipeError, match=r"vse.rows.none is tested in 'de', but reads only en; leave 'de' out of"):
        Graph(recipe, here).rows
    assert Graph(load_recipe("scenes", [*OVERRIDES, "--vse.unseen=error", "--vse.test=[en]"]), here).rows


def test_translate_search_is_marked_where_the_model_never_saw_what_it_reads(here):
    more = ["--vse.rows.german=[de/human]", "--vse.only=[none,german]", "--vse.translate=mt:de-en", "--vse.seeds=[1]"]
    none, german = Graph(load_recipe("scenes", more), here).rows
    assert (none.languages, none.unseen) == ({"de"}, set())
    assert (german.languages, german.unseen) == ({"de"}, {"de"})


def test_translate_search_by_what_a_lender_does_not_train_is_one_line(here, tmp_path):
    (tmp_path / "lender.yaml").write_text("base: scenes")
    more = ["--mmt.systems=[mt,mmt,mt+channel]", f"--augment.translators={tmp_path / 'lender.yaml'}"]
    recipe = load_recipe("scenes", [*more, "--vse.translate=mt+channel:de-en"])
    with pytest.raises(
        RecipeError, match=r"vse.translate is 'mt\+channel:de-en', but .*lender.yaml trains no mt\+chann"
    ):
        Graph(recipe, here).rows


def test_a_row_that_nothing_can_be_trained_on_is_told_before_the_first_hour(here, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for more, words in (
        ("--vse.rows.x=[de/mmt:en-de-en-de]", "which augment.paths lacks"),
        ("--vse.type_weights={xx/human: 1}", "vse.type_weights names 'xx/human', but row none trains on en/human"),
    ):
        assert (
            main(
                [
                    "all",
                    "--recipe",
                    "scenes",
                    "--vse.loss=hardest",
                    more,
                    "--vse.only=[none]" if "x/" in more else "--vse.only=[x]",
                ]
            )
            == 1
        )
        assert words in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "artifacts").exists()


def test_an_empty_report_replaces_none_with_figures(here):
    graph = Graph(load_recipe("scenes", ["--report.record=false"]), here)
    report(graph)  # the first one may be empty
    path = here.root / "scenes/report/results.jsonl"
    path.write_text("figures\n")
    with pytest.raises(RecipeError, match=r"scenes/report: this report stays as it is, because nothing has been"):
        report(graph)
    assert path.read_text() == "figures\n"


def test_means_over_folds_have_a_table_and_a_split_of_their_own_here_and_when_recorded(here):
    recipe = load_recipe("scenes", [*OVERRIDES, "--vse.folds=5"])
    rows = [row for row in Graph(recipe, here).rows if row.name == "none"]
    for row, value in zip(rows, (60.0, 80.0), strict=True):
        folds = {"en": scores(value) | {"images": 1000.0}}
        finish(here, row.job, {"test": {"en": scores(44.0)}, "folds": folds}, [("en", arrays(1))])
    tables = []
    for _ in range(2):
        report(Graph(recipe, here))
        text = (here.root / "scenes/report/report.md").read_text()
        title = "**Retrieval, san, en, test, mean of 5 folds, scenes (scenes)**"
        tables.append(text.split(title)[1].split("**")[0])
        found = [json.loads(line) for line in (here.root / "scenes/report/results.jsonl").read_text().splitlines()]
        recalls = {row["split"]: row for row in found if row["metric"] == "mean_recall"}
        assert {split: row["value"] for split, row in recalls.items()} == {"test": 44.0, "test-1k": 70.0}
        assert (recalls["test-1k"]["low"], recalls["test-1k"]["n"], recalls["test-1k"]["seeds"]) == (None, 1000, 2)
        for row in rows:
            shutil.rmtree(here.folder(row.job), ignore_errors=True)
    assert tables[0] == tables[1]
    assert "| none | 70.0 |" in tables[0]
    assert "| human-de | not run |" in tables[0]


def test_diversity_of_captions_here_and_when_recorded(here):
    recipe = load_recipe("scenes", [*OVERRIDES, "--augment.paths=[mt:en-de-en,mmt:en-de-en]"])
    job = Graph(recipe, here).synthesis["mt:en-de-en"]
    human = [Caption("1.jpg", "1#en1", "en", "a red ball", "train", "human"),
             Caption("1.jpg", "1#en2", "en", "a ball", "train", "human")]  # fmt: skip
    new = [
        Caption("1.jpg", f"new {n}", "en", "a blue ball", "train", "mt:en-de-en", human[n].caption_id) for n in (0, 1)
    ]
    finish(here, job, diversity(table_of(human), table_of(new), "en") | {"empty": 0})
    tables = []
    for _ in range(2):
        report(Graph(recipe, here))
        tables.append(
            (here.root / "scenes/report/report.md").read_text().split("**Lexical diversity")[1].split("**")[1]
        )
        found = [json.loads(line) for line in (here.root / "scenes/report/results.jsonl").read_text().splitlines()]
        (unique,) = [row for row in found if row["metric"] == "unique_with_synthetic"]
        place = ("train", "mt", "mt:en-de-en", "en")
        assert tuple(unique[name] for name in ("split", "system", "source", "language")) == place
        assert (unique["value"], unique["n"]) == (4.0, 2)
        shutil.rmtree(here.folder(job), ignore_errors=True)
    assert tables[0] == tables[1]
    assert "| mt:en-de-en | 2 | 3 | 4 | 3 | 0 | 0 | " in tables[0]
    assert "| mmt:en-de-en | not run |" in tables[0]


def test_retrieved_captions_of_folds_are_of_the_fold_s_images_not_of_those_with_two_captions(here):
    recipe = load_recipe("scenes", [*OVERRIDES, "--vse.folds=3", "--vse.retrieved_captions=true"])
    row = next(row for row in Graph(recipe, here).rows if row.name == "none")
    of_ranks = {f"retrieved_{name}@{k}": 9.0 for name in ("bleu1", "bleu2", "bleu3", "bleu4", "cider") for k in (1, 2)}
    folds = {"en": {"images": 4.0, "retrieved_images": 8 / 3, **of_ranks}}
    finish(here, row.analyses["retrieved"], {"folds": folds})
    report(Graph(recipe, here))
    text = (here.root / "scenes/report/report.md").read_text()
    assert "**Retrieved captions, san, en, mean of folds of 4 images, scenes (scenes): " in text
    assert text.count("**Retrieved captions, san, de") == 1  # nothing was measured in folds
    found = [json.loads(line) for line in (here.root / "scenes/report/results.jsonl").read_text().splitlines()]
    assert {(row["split"], row["n"]) for row in found if row["metric"].startswith("retrieved")} == {("test-4", 4)}


def test_without_folds_there_is_no_table_of_them(here):
    report(Graph(load_recipe("scenes", OVERRIDES), here))
    assert "folds" not in (here.root / "scenes/report/report.md").read_text()


def test_figures_of_other_settings_are_not_mixed_in(here):
    """Records are found by recipe, row and seed, so a setting may be renamed; what is set otherwise is another row."""
    longer = "--vse.epochs=99"
    add_records("scenes", [record("vse-san-none-1", name, value) for name, value in scores(44.0).items()])
    more = [record("vse-san-none-1", name, value, "vse.epochs=99") for name, value in scores(77.0).items()]
    add_records("scenes", [*more, record("vse-san-none-1", "t2i_r1", 99.0, "SCAN")])
    for overrides, shown in (([], "44.0"), (["--vse.margin=0.3"], "not run"), ([longer, "--vse.seeds=[1]"], "77.0")):
        shutil.rmtree(here.root / "scenes", ignore_errors=True)
        report(Graph(load_recipe("scenes", [*OVERRIDES, "--report.record=false", *overrides]), here))
        assert f"| none | {shown} |" in (here.root / "scenes/report/report.md").read_text()


def test_what_names_a_variant():
    given = ["--vse.seeds=[1]", "--vse.loss=infonce", "--trainer.devices=2", "--corpus.root=x", "--report.resamples=9"]
    assert variant_of(given) == "vse.loss=infonce"
    more = ["--vse.loss=hardest", "--mmt.trainer.precision=32-true", "--vse.trainer.workers=2"]
    assert variant_of([*given, *more]) == "mmt.trainer.precision=32-true vse.loss=hardest"


def test_figures_of_tables_are_named_by_the_settings_that_reach_them(tmp_path: Path) -> None:
    def named(recipe: str, *overrides: str) -> set[tuple[str, str]]:
        """Key and variant of each job of the tables."""
        graph = Graph(load_recipe(recipe, overrides), Workspace(tmp_path))
        variants = variants_of(graph)
        jobs = [row.job for rows in graph.tables.values() for row in rows]
        return {(job.key, variant_of_job(job, graph.recipe, variants)) for job in jobs}

    plain = named("scenes-gxn")
    for override in ("--vse.loss=hardest", "--vse.options.longest=9", "--vse.only=[none]"):
        assert named("scenes-gxn", override) == plain  # the same models
    longer = named("scenes-gxn", "--vse.epochs=99", "--vse.loss=hardest")
    assert not {key for key, _ in longer} & {key for key, _ in plain}
    assert all(variant.endswith("vse.epochs=99") for _, variant in longer)
