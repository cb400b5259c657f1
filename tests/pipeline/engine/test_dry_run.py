"""`--dry-run`: what would run, what is done, what goes on, and what it may cost; nothing is written or trained."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from pipeline.commands.dry_run import NOT_KNOWN, planned, show_plan
from pipeline.engine.artifacts import read_manifest, write_manifest
from pipeline.engine.job import Job
from pipeline.engine.progress import Costs, Estimate, megabytes_in
from pipeline.engine.workspace import Workspace
from pipeline.graph import Graph
from pipeline.stages import all_jobs
from tests.pipeline.tiny import RERANKED, Tiny, ran

STAGES = ("prepare", "mmt", "augment", "vse", "report", "all")


def finish(jobs: Iterable[Job], workspace: Workspace, seconds: float = 40.0, **changed) -> None:
    """Leave what jobs leave without doing their work: a file of 2 MB each, and a manifest."""

    def work(folder: Path, _) -> dict:
        (folder / "figures.bin").write_bytes(bytes(2_000_000))
        return {}

    for job in jobs:
        folder = ran(workspace, replace(job, run=work, headline=lambda _: ""))
        costs = {"wall_s": seconds, "peak_memory_mb": 500.0, **changed}
        write_manifest(folder, read_manifest(folder) | costs)


def state(folder: Path) -> dict[str, tuple]:
    """Dates and contents of all that is in a folder, itself too."""
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path in [folder, *folder.rglob("*")]
    }


def lines(tiny: Tiny, capsys, command: str, *arguments: str) -> list[str]:
    """What a dry run prints; it must succeed and change nothing."""
    capsys.readouterr()
    before = state(tiny.folder)
    assert tiny.main(command, "--dry-run", *arguments) == 0
    assert state(tiny.folder) == before
    return capsys.readouterr().out.splitlines()


def of(found: list[str], name: str) -> str:
    """The line of a job, without its name."""
    (line,) = [one for one in found if one.split()[:1] == [name]]
    return " ".join(line.split()[1:])


@pytest.mark.parametrize("command", STAGES)
def test_where_nothing_is_there_costs_are_not_known_and_no_folder_is_made(fresh: Tiny, capsys, command: str) -> None:
    found = lines(fresh, capsys, command)
    assert found[-1] == "nothing was run or written"
    assert not fresh.workspace.root.exists()
    if command == "report":
        assert found[0] == "with these settings the command runs no jobs"
    else:
        assert of(found, "corpus") == f"runs {NOT_KNOWN} {NOT_KNOWN} {NOT_KNOWN}"
        assert f"time {NOT_KNOWN}" in found[-2] + found[-3]


def test_other_commands_have_it_too(fresh: Tiny, capsys) -> None:
    assert "nbest-mt-en-de" in " ".join(lines(fresh, capsys, "rerank", *RERANKED))
    fresh.yaml.write_text(
        fresh.yaml.read_text() + "tables: {t: {title: T, language: en, systems: {san: {rows: [human]}}}}\n"
    )
    assert of(lines(fresh, capsys, "table", "--table", "t"), "vse-san-human-1").startswith("runs")
    for command in ("draw", "table"):  # what the command refuses, in its own words
        assert fresh.main(command, "--dry-run") == 1
        assert len(capsys.readouterr().err.splitlines()) == 1
    assert not fresh.workspace.root.exists()


def test_networks_are_not_needed_and_digests_of_their_files_not_kept(fresh: Tiny, capsys) -> None:
    found = lines(fresh, capsys, "vse", "--vse.pretrained=nobody/nothing", "--vse.image_encoder=nobody/nothing")
    assert of(found, "vse-san-human-1").startswith("runs")
    (fresh.folder / "network").mkdir()
    (fresh.folder / "network" / "config.json").write_text("{}")
    found = lines(fresh, capsys, "vse", f"--vse.pretrained={fresh.folder / 'network'}")
    assert of(found, "vse-san-human-1").startswith("runs")
    assert not fresh.workspace.root.exists()


def test_what_is_done_what_is_like_it_and_what_is_not_known(fresh: Tiny, capsys) -> None:
    finish(all_jobs(Graph(fresh.recipe(), fresh.workspace)), fresh.workspace)
    found = lines(fresh, capsys, "all")
    assert of(found, "mmt-en-de") == "is up to date"
    assert "15 jobs, 15 up to date; nothing to run" in found

    found = lines(fresh, capsys, "vse", "--vse.seeds=[2]")
    assert of(found, "corpus") == "is up to date"
    assert of(found, "vse-san-human-2") == "runs 40 s 500 MB 2.0 MB"
    assert any("2 would run: time about 80 s, memory about 500 MB, disk about 4.0 MB (" in one for one in found)

    found = lines(fresh, capsys, "all", "--vse.seeds=[2]", "--jobs", "2")
    assert any("2 would run: time about 40 s, memory about 1,000 MB" in one for one in found)
    found = lines(fresh, capsys, "vse", "--vse.epochs=5")  # other settings: of the kind
    assert of(found, "vse-san-human-1") == "runs ~ 40 s ~ 500 MB ~ 2.0 MB"
    assert of(lines(fresh, capsys, "vse", "--vse.model=dan"), "vse-dan-human-1").startswith(f"runs {NOT_KNOWN}")
    other = "--corpus.train=25"  # other data: by the amount of work, where it is known
    assert of(lines(fresh, capsys, "mmt", other), "mt-en-de") == "runs ~ 40 s ~ 500 MB ~ 2.0 MB"
    assert of(lines(fresh, capsys, "vse", other), "vse-san-human-1").startswith(f"runs {NOT_KNOWN}")


def test_force_runs_again_what_the_command_forces(fresh: Tiny, capsys) -> None:
    finish(all_jobs(Graph(fresh.recipe(), fresh.workspace)), fresh.workspace)
    found = lines(fresh, capsys, "vse", "--force")
    assert of(found, "corpus") == "is up to date"
    assert of(found, "vse-san-human-1").startswith("runs again 40 s")
    assert of(lines(fresh, capsys, "all", "--force"), "corpus").startswith("runs again")


def test_what_another_run_has_begun_continues(fresh: Tiny, capsys) -> None:
    jobs = {job.name: job for job in all_jobs(Graph(fresh.recipe(), fresh.workspace))}
    finish([jobs["corpus"]], fresh.workspace)
    partial = fresh.workspace.folder(jobs["text"]).with_suffix(".partial")
    partial.mkdir(parents=True)
    (partial / "started.json").write_text(json.dumps({"format": 1, "source": "x", "forced": False}))
    found = lines(fresh, capsys, "mmt")
    assert of(found, "text").startswith("continues")
    assert of(found, "nmt-en-de").startswith("runs")


def test_what_must_be_done_before_is_named_with_its_command(fresh: Tiny, capsys) -> None:
    found = lines(fresh, capsys, "vse")
    (line,) = [one for one in found if one.startswith("first run")]
    assert "`bildwort augment`" in line
    assert "synthetic-mmt-en-de-en" in line
    assert not [one for one in lines(fresh, capsys, "all") if one.startswith("first run")]


def test_a_damaged_manifest_is_refused_as_the_run_refuses_it(fresh: Tiny, capsys) -> None:
    job = all_jobs(Graph(fresh.recipe(), fresh.workspace))[0]
    finish([job], fresh.workspace)
    (fresh.workspace.folder(job) / "manifest.json").write_text("{")
    assert fresh.main("prepare", "--dry-run") == 1
    assert "not a readable manifest" in capsys.readouterr().err


def test_the_dry_run_lists_what_the_run_performs(tiny: Tiny, capsys) -> None:
    for stage in ("prepare", "mmt", "augment", "vse"):
        listed = [one.split()[0] for one in lines(tiny, capsys, stage) if one.rstrip().endswith("is up to date")]
        assert tiny.main(stage) == 0
        told = [one.split()[0] for one in capsys.readouterr().out.splitlines() if one.endswith("is up to date")]
        assert told == [name for name in listed if name != "corpus" or stage == "prepare"]
        assert listed


def made(name: str, seed: int = 1, **settings) -> Job:
    corpus = Job("corpus", "prepare", 1, {}, {}, lambda *_: {})
    plain = {"seed": seed, **settings}
    return Job(name, "vse", 1, plain, {"corpus": corpus}, lambda *_: {}, runtime={"threads": 1})


def estimated(workspace: Workspace, job: Job) -> Estimate:
    return Costs(workspace.manifests_of_this_machine(), workspace.root).of(job)


def test_an_estimate_is_the_median_of_like_jobs_of_this_machine(workspace: Workspace) -> None:
    first, second, third, fourth = (made(f"vse-san-{seed}", seed) for seed in range(4))
    finish([first.inputs["corpus"]], workspace)
    finish([first], workspace, 10)
    finish([second], workspace, 30)
    disk = median(megabytes_in(workspace.folder(one)) for one in (first, second))  # manifests differ by some bytes
    assert estimated(workspace, third) == Estimate(20, 500, disk)
    finish([third], workspace, 900, resumed=True)  # its time is of the last part
    assert estimated(workspace, fourth).seconds == 20
    finish([fourth], workspace, 9000, machine={"processor": "other"})
    assert estimated(workspace, third).seconds == 20
    other = replace(fourth, runtime={"threads": 8})
    assert not estimated(workspace, other).alike  # threads cost time
    assert estimated(workspace, first.inputs["corpus"]).seconds == 40
    assert estimated(workspace, Job("text", "mmt", 1, {}, {}, lambda *_: {})) == Estimate()


def test_the_total_counts_jobs_side_by_side(workspace: Workspace, capsys) -> None:
    jobs = [made(f"vse-san-{seed}", seed) for seed in range(3)]
    finish([jobs[0].inputs["corpus"], jobs[0]], workspace)
    show_plan(jobs, Workspace(workspace.root, read_only=True), at_once=2)
    assert "2 would run: time about 40 s, memory about 1,000 MB, disk about 4.0 MB" in capsys.readouterr().out
    show_plan(jobs, Workspace(workspace.root, read_only=True), at_once=4)
    assert "2 would run: time about 40 s" in capsys.readouterr().out, "no job takes less than all of its time"
    after = replace(made("vse-san-7", 7), inputs={**jobs[1].inputs, "needed": jobs[2]})
    show_plan([*jobs, after], Workspace(workspace.root, read_only=True), at_once=4)
    assert "3 would run: time about 80 s" in capsys.readouterr().out, "one needs another"
    unknown = replace(made("other"), stage="mmt")
    show_plan([*jobs, unknown], workspace)
    assert "3 would run: time more than 80 s, memory more than 500 MB" in capsys.readouterr().out
    assert [one.does for one in planned(jobs, workspace, {"vse"})] == ["runs again", "runs", "runs"]
