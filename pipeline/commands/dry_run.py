"""What a command would do and what that may cost, shown before anything is done; nothing is written."""

import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest

from pipeline.engine.console import counted, info, stage_command
from pipeline.engine.job import Job, unique_names
from pipeline.engine.machine import duration, process_rank
from pipeline.engine.progress import Costs, Estimate, longest_chains
from pipeline.engine.workspace import Workspace
from pipeline.visualization.text_table import TextTable

NOT_KNOWN = "not known"
DONE = "is up to date"
_RUNS, _AGAIN, _GOES_ON = "runs", "runs again", "continues"


@dataclass(frozen=True)
class Planned:
    """What a command would do with a job.

    Attributes:
        does: `runs`, `runs again`, `continues` what another run has begun, or `is up to date`.
        cost: what it may cost; of a job that continues, the whole job; None: it does not run.
    """

    job: Job
    does: str
    cost: Estimate | None


def planned(jobs: Iterable[Job], workspace: Workspace, forced: Collection[str] = ()) -> list[Planned]:
    """What would be done with jobs.

    Args:
        jobs: in the order in which they run.
        forced: stages whose jobs run again if they are done.

    Raises:
        RecipeError: the manifest of a job that is done is damaged, or of another format.
    """
    known, plan = Costs(workspace.manifests_of_this_machine(), workspace.root), []
    for job in jobs:
        done, again = workspace.done(job), job.stage in forced
        if done:
            workspace.manifest(job)  # refuses what the run refuses
        if done and not again:
            plan.append(Planned(job, DONE, None))
        else:
            does = _AGAIN if done else _GOES_ON if workspace.beginning(job) and not again else _RUNS
            plan.append(Planned(job, does, known.of(job)))
    return plan


def show_plan(jobs: Sequence[Job], workspace: Workspace, forced: Collection[str] = (), at_once: int = 1) -> None:
    """Print what would be done with jobs, its costs, a total, and what must be done before.

    Args:
        jobs: in the order in which they run.
        forced: stages whose jobs run again if they are done.
        at_once: how many jobs run side by side.

    Raises:
        RecipeError: as `planned`.
    """
    if process_rank() > 0:
        return
    plan = planned(jobs, workspace, forced)
    costs = {step.job.key: step.cost for step in plan if step.cost is not None}
    own = {key: cost.seconds or 0.0 for key, cost in costs.items()}
    chain = max(longest_chains([step.job for step in plan if step.cost], own).values(), default=0.0)
    if plan:
        shown = unique_names(step.job for step in plan)
        rows = [[shown[step.job.key], step.does, *_shown(step.cost)] for step in plan]
        TextTable("dry run", ["job", "does", "time", "memory", "disk"], rows).show_lines()
        total = _total([*costs.values()], chain, workspace, at_once)
        info(f"{counted(len(plan), 'jobs')}, {len(plan) - len(costs)} up to date; {total}")
    else:
        info("with these settings the command runs no jobs")
    if any(not cost.alike for cost in costs.values()):
        info("~: by jobs of this kind and model with other settings or data, scaled by steps and captions where known")
    for stage, names in _lacking(plan, workspace).items():
        info(f"first run {stage_command(stage)}: it makes {', '.join(names)}")
    info("nothing was run or written")


def _shown(cost: Estimate | None) -> list[str]:
    """Time, memory and disk of a job as cells."""
    if cost is None:
        return ["", "", ""]
    cells = [
        _or_not_known(cost.seconds, duration),
        *(_or_not_known(amount, _mb) for amount in (cost.memory_mb, cost.disk_mb)),
    ]
    return [cell if cost.alike or cell == NOT_KNOWN else f"~ {cell}" for cell in cells]


def _or_not_known(value: float | None, shown: Callable[[float], str]) -> str:
    return NOT_KNOWN if value is None else shown(value)


def _mb(value: float) -> str:
    return f"{value:,.0f} MB" if value >= 10 else f"{value:.1f} MB"


def _total(costs: Sequence[Estimate], chain: float, workspace: Workspace, at_once: int) -> str:
    """Time (at least that of the longest chain), memory and disk of the jobs that run, and what disk is free."""
    if not costs:
        return "nothing to run"
    seconds, memory, disk = (
        [value for cost in costs if (value := getattr(cost, name)) is not None]
        for name in ("seconds", "memory_mb", "disk_mb")
    )
    parts = {
        "time": (seconds, duration(max(sum(seconds) / at_once, chain))),
        "memory": (memory, _mb(sum(nlargest(at_once, memory)))),
        "disk": (disk, _mb(sum(disk))),
    }
    shown = [
        f"{what} {'about' if len(values) == len(costs) else 'more than'} {text}" if values else f"{what} {NOT_KNOWN}"
        for what, (values, text) in parts.items()
    ]
    return f"{len(costs)} would run: {', '.join(shown)} (free: {_mb(_free(workspace))})"


def _free(workspace: Workspace) -> float:
    """Megabytes that are free where the artifacts lie or will lie."""
    place = workspace.root.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free / 1e6


def _lacking(plan: Sequence[Planned], workspace: Workspace) -> dict[str, list[str]]:
    """Stage → what jobs read that is not there and that the command does not make."""
    made, missing = {step.job.key for step in plan}, dict[str, dict[str, None]]()
    for step in plan:
        for input_job in step.job.inputs.values() if step.cost is not None else ():
            if input_job.key not in made and not workspace.done(input_job):
                missing.setdefault(input_job.stage, {})[input_job.name] = None
    return {stage: list(names) for stage, names in missing.items()}
