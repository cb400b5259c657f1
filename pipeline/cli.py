"""The command line: `bildwort COMMAND [RECIPE] [--section.key VALUE …]`, a subcommand for each verb.

A command imports what it needs when it runs: help, and the refusal of a wrong setting, need no torch.
"""

import atexit
import os

# Before torch is imported: waiting threads that spin take the cores from those that work (10× and more when shared).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["MPLBACKEND"] = "agg"  # no window is opened; matplotlib stops at a name that it does not know

import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import version as installed_version
from typing import Annotated, Any, NoReturn

import typer

from data.errors import BadLinesError, DataError
from modules.errors import ModelError
from pipeline.commands import figures, models, recipes, servers, stages
from pipeline.commands.options import DATA, USE, recipe_names
from pipeline.engine.console import be_verbose, error_line, info_aside
from pipeline.engine.machine_errors import explained, line_of, quieten, require_current_folder
from pipeline.errors import RecipeError, in_our_words, require_readable

UsageError: type[Exception] = typer.BadParameter.__bases__[0]  # Typer does not export it
_INTERRUPTED, _TERMINATED = 130, 143  # by Ctrl-C and by SIGTERM, as shells have it
_CLOSED_PIPE = "PacifyFlushWrapper"  # what Typer puts for the standard output when its reader has closed it
_GOES_ON = {
    "all", *stages.STAGES, *stages.PLAIN_NAMES.values(), "table", "sts", "draw", "embed", "index",
}  # fmt: skip
_ANSWERS = {
    "search",
    "describe",
    "translate",
    "rerank-translations",
    "caption",
    "evaluate",
    "compare",
    "recipes",
    "config",
}
"""Commands whose result is what they print, unless `--output` names a file."""
_SETTING = re.compile(r"--(?:seed|\w+(?:\.[\w-]+)+)(=|$)", re.DOTALL)

app = typer.Typer(
    name="bildwort", help="Multilingual image-text retrieval, trained with captions that a translator writes.",
    no_args_is_help=True, pretty_exceptions_enable=False, context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip
_GROUPS = (
    ("Train", stages), ("Look at results", figures), (USE, models), (USE, servers), (DATA, recipes),
)  # fmt: skip
for _title, _group in _GROUPS:  # help lists the commands in this order
    for _command in (*_group.app.registered_commands, *_group.app.registered_groups):
        _command.rich_help_panel = _command.rich_help_panel or _title
    app.add_typer(_group.app, rich_help_panel=_title)


def split_settings(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part the settings of a recipe from the rest of a command line.

    Args:
        arguments: `--vse.epochs=30` and `--vse.epochs 30` are settings, up to a `--`.

    Returns:
        the settings as `--section.key=value`, and the rest.

    Raises:
        RecipeError: a setting has no value.
    """
    settings, rest, left = list[str](), list[str](), list(arguments)
    while left:
        argument = left.pop(0)
        if argument == "--":
            return settings, [*rest, argument, *left]
        if (match := _SETTING.match(argument)) is None:
            rest.append(argument)
        elif match[1]:
            settings.append(argument)
        elif not left or left[0].startswith("--"):
            raise RecipeError(f"argument {argument!r}: no value; expected {argument} VALUE")
        else:
            settings.append(f"{argument}={left.pop(0)}")
    return settings, rest


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"bildwort {installed_version('bildwort')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_show_version, is_eager=True, help="show it")] = False,
) -> None:
    """Options of the program itself."""


def run() -> NoReturn:
    """`main` of a process of its own, which ends at once: Python would take seconds to take torch's modules apart."""
    status = main()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    atexit._run_exitfuncs()
    os._exit(status)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; an error that a person can act on is one line, and the status 1 (2: no such command).

    Of bad lines of a file the first ten are a line each. SIGTERM stops it as Ctrl-C does, with the status 143.
    """
    terminated, process = list[float](), os.getpid()

    def terminate(number: int, _: object) -> None:
        """Stop as by Ctrl-C; a process that this one has forked ends at once."""
        if os.getpid() != process:
            os._exit(_TERMINATED)
        terminated.append(time.monotonic())
        if len(terminated) == 1 or terminated[-1] - terminated[-2] > 1:  # `timeout` sends two, one to the whole group
            raise KeyboardInterrupt

    with _handled(signal.SIGTERM, terminate):
        status = _main(list(sys.argv[1:] if arguments is None else arguments))
    return _TERMINATED if terminated and status == _INTERRUPTED else status


@contextmanager
def _handled(number: int, handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Handle a signal, in the main thread, the only one that can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def _main(words: list[str]) -> int:
    """Run one command; its status."""
    try:
        quieten()
        be_verbose(False)
        _open_closed(words)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # a name of a file may have bytes that are no text
                stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        status = _run(words)
        sys.stdout.flush()
    except (DataError, ModelError, RecipeError) as error:
        for told in error.told if isinstance(error, BadLinesError) else [str(error)]:
            error_line(told)
        return 1
    except (typer.Abort, KeyboardInterrupt) as error:
        if isinstance(error.__cause__, EOFError):  # of a file; Typer takes it for the end of what is typed
            raise error.__cause__ from None
        status = _INTERRUPTED
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:
        if (line := line_of(error)) is None:
            raise
        error_line(line)
        return 1
    except UsageError as error:
        if text := " ".join(error.format_message().split()):  # type: ignore[attr-defined] # none: help was printed
            extra = re.search(r"unexpected extra argument(?:\(s\))? \((\S+)\)", text)
            is_recipe = extra is not None and (extra[1].endswith((".yaml", ".yml")) or extra[1] in recipe_names())
            if extra is not None and (is_recipe or words[:1] == ["search"]):
                text += f"; name a recipe by --recipe {extra[1]}" if is_recipe else "; put the query in quotation marks"
            error_line(in_our_words(text) + _setting_meant(text))
        return 2
    if status == _INTERRUPTED:
        goes_on = "continues from where it was stopped"
        if "--force" in words:
            goes_on = "runs finished jobs again, and continues the one that was stopped"
        info_aside("stopped" if _GOES_ON.isdisjoint(words) else f"stopped; the same command {goes_on}")
    return int(status or 0)


def _setting_meant(text: str) -> str:
    """What is added to an error of an option that is none, or of a word too much, where a setting is meant."""
    option = re.search(r"o such option: --([\w-]+)", text)
    word = re.search(r"unexpected extra argument(?:\(s\))? \((\w+(?:\.[\w-]+)+)", text)
    if not (option or word):
        return ""
    from pipeline.recipes.documentation import setting_names

    if word:
        return f"; settings begin with --: --{word[1]} …" if word[1] in setting_names() else ""
    names = [f"--{name}" for name in setting_names() if option and name.rpartition(".")[2] == option[1]]
    return f"; settings are named with their section: {', '.join(names[:3])}" if names else ""


def _open_closed(words: Sequence[str]) -> None:
    """Let commands work where the standard output is closed; RecipeError for those that would answer there."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123  # as long as the process
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
        if words[:1] and words[0] in _ANSWERS and not any(word.partition("=")[0] == "--output" for word in words):
            raise RecipeError("the standard output is closed, where the answer would stand; send it to a file "
                              "(`> FILE`)")  # fmt: skip


def _run(words: Sequence[str]) -> Any:
    """What Typer returns for a command line."""
    require_current_folder()
    for word in words:
        require_readable(word)
    settings, rest = split_settings(words)
    try:
        with explained(rest[0] if rest else "bildwort"):
            return typer.main.get_command(app).main(rest, "bildwort", standalone_mode=False, obj=settings)
    except SystemExit:
        if type(sys.stdout).__name__ != _CLOSED_PIPE:
            raise
        return 0
