"""Which process of a distributed run this one is."""

import os


def rank() -> int:
    """This process's rank before any process group exists (torchrun, SLURM and Lightning set these)."""
    for name in ("RANK", *(("SLURM_PROCID",) if by_srun() else ()), "LOCAL_RANK"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


def started_together() -> bool:
    """Did torchrun or SLURM start all ranks at once? (Lightning's own start rank 0 first.)"""
    return "TORCHELASTIC_RUN_ID" in os.environ or by_srun()


def by_srun() -> bool:
    """Is this one of several processes that srun has started?

    In an allocation, a batch script or an interactive shell SLURM's variables are set for a plain command too. Such a
    shell is recognised by its job's name, as Lightning does it.
    """
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", os.environ.get("SLURM_NTASKS", "1"))
    by_hand = os.environ.get("SLURM_JOB_NAME") in ("bash", "interactive")
    return {"SLURM_PROCID", "SLURM_STEP_ID"} <= os.environ.keys() and not by_hand and int(tasks) > 1


def run_id() -> str:
    """An id that all ranks of one run share and no other run on the machine has."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        return f"{os.environ.get('MASTER_ADDR', '')}-{os.environ.get('MASTER_PORT', '')}"
    if started_together():
        return f"{os.environ.get('SLURM_JOB_ID', '')}-{os.environ.get('SLURM_STEP_ID', '')}"
    return str(os.getppid() if rank() else os.getpid())  # Lightning's rank 0 starts the others
