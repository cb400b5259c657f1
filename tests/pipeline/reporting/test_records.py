"""Records: figures that outlive their artifacts, and are mixed with none of other settings."""

import shutil
from dataclasses import replace

import pipeline.reporting.records as store
from pipeline.graph import Graph
from pipeline.recipes.loading import CONFIGS, load_recipe
from pipeline.reporting.records import add_records, flat_metrics, read_records, records_of
from pipeline.reporting.report import report
from pipeline.reporting.results import Figures
from tests.pipeline.reporting.finished import OVERRIDES, arrays, finish, record, scores


def test_only_recipes_have_records():
    """A test that records would leave a file in the checkout."""
    recipes = {path.stem for path in CONFIGS.glob("*.yaml")}
    assert {path.stem for path in store.RECORDS.glob("*.csv")} <= {*recipes, "speed"}


def test_records_fill_the_table_when_the_artifacts_are_gone(here):
    recipe = load_recipe("scenes", OVERRIDES)
    rows = [row for row in Graph(recipe, here).rows if row.name == "none"]
    found = [record(row.job.name, name, value) for row in rows for name, value in scores(44.0).items()]
    assert add_records("scenes", found) == len(found)
    assert add_records("scenes", found) == 0
    assert read_records("scenes") == found
    again = [replace(found[0], value=43.0, wall_s=2.0), replace(found[1], wall_s=2.0)]  # by --force
    assert add_records("scenes", again + again) == 1
    assert read_records("scenes") == [*again, *found[2:]]
    assert add_records("scenes", found) == 1
    report(Graph(recipe, here))
    assert "| none | 44.0 |" in (here.root / "scenes/report/report.md").read_text()


def test_a_recipe_of_somebody_s_own_has_records_of_its_own(here, tmp_path):
    """Its name may be that of one of the package."""
    (tmp_path / "scenes.yaml").write_text("base: scenes")
    own, theirs = (load_recipe(name, OVERRIDES) for name in (str(tmp_path / "scenes.yaml"), "scenes"))
    (job, *_) = (row.job for row in Graph(theirs, here).rows)
    add_records("scenes", [record(job.name, name, value) for name, value in scores(44.0).items()])
    assert records_of(theirs)
    assert records_of(own) == []
    finish(here, job, {"test": {"en": scores(20.0)}}, [("en", arrays(1))])
    store.record(Graph(own, here), [job], {})
    assert {row.value for row in records_of(own)} == {20.0}
    assert (tmp_path / "scenes-records" / "scenes.csv").is_file()
    assert {row.value for row in records_of(theirs)} == {44.0}


def test_a_record_of_other_settings_does_not_stay(here):
    first, second = (record("mt-en-de", name, 20.0) for name in ("test_bleu", "test_ter"))
    add_records("scenes", [first, second])
    again = replace(first, settings="1" * 12)  # the same value, and no TER
    assert add_records("scenes", [again]) == 1
    assert read_records("scenes") == [again]


def test_translators_take_no_record_of_other_settings_beside_an_artifact(here):
    graph = Graph(load_recipe("scenes", OVERRIDES), here)
    add_records("scenes", [record(name, "test_bleu", 20.0) for name in ("mt-en-de", "mmt-en-de")])
    add_records("scenes", [replace(row, language="") for row in read_records("scenes")])
    jobs = [graph.translators[name] for name in ("mt-en-de", "mmt-en-de")]
    scores_of = lambda: [*Figures(graph, read_records("scenes")).own_scores(jobs).values()]  # noqa: E731
    assert scores_of() == [{"test_bleu": 20.0}] * 2
    finish(here, jobs[0], {"test_bleu": 31.5})
    assert scores_of() == [{"test_bleu": 31.5}, {}]


def test_a_mean_over_seeds_takes_no_record_of_other_settings_beside_an_artifact(here):
    graph = Graph(load_recipe("scenes", OVERRIDES), here)
    first, second = jobs = [row.job for row in graph.rows if row.name == "none"]
    for key, before, after in (("0" * 12, [20.0], [60.0]), (second.key, [20.0], [60.0, 20.0])):
        records = [replace(record(second.name, name, value), settings=key) for name, value in scores(20.0).items()]
        for expected in (before, after):
            found = Figures(graph, records).run(jobs, "en", "rsum")[1]
            assert [each["rsum"] for each in found] == expected
            if expected is before:
                finish(here, first, {"test": {"en": scores(60.0)}})
        shutil.rmtree(here.folder(first))


def test_figures_are_named_by_part_and_language():
    parts = {"val": {"en": {"rsum": 2.0}}, "test": {"en": {"rsum": 1.0}}, "folds": {"de": {"rsum": 3.0}}}
    own = {"test_bleu": 4.5, "choices": 7, "captions": 9, "test_sentences": 5}
    others = {"steps": 3, "curve": {"a": 1}, "name": "x"}
    assert flat_metrics(parts | own | others) == {
        ("en", "rsum"): 1.0, ("en", "val_rsum"): 2.0, ("de", "folds_rsum"): 3.0,
        **{("", name): value for name, value in own.items()},
    }  # fmt: skip


def test_figures_of_a_language_are_its_own(here):
    graph = Graph(load_recipe("scenes", OVERRIDES), here)
    (job, *_) = (row.job for row in graph.rows)
    english = [record(job.name, name, value) for name, value in scores(20.0).items()]
    german = [replace(record(job.name, name, value), language="de") for name, value in scores(60.0).items()]
    for records in (english + german, german + english):
        figures = Figures(graph, records)
        assert figures.run([job, job], "en", "rsum")[1] == [scores(20.0)]
        assert figures.run([job], "de", "rsum")[1] == [scores(60.0)]
        assert figures.run([job], "fr", "rsum") == ([], [])
