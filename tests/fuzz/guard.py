"""What a reader must leave alone: files beside the given folder, other programs, the network, pickles."""

import io
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, PngImagePlugin

ROOT = Path(__file__).parents[2]
PRODUCT = tuple(f"{ROOT / package}{os.sep}" for package in ("data", "modules", "pipeline"))
SECRET = "geheim7391"
"""Stands in every file beside the given folder, so that it is found wherever it is copied to."""
_TEXTS = {
    "secret.txt": f"{SECRET}\n", "secret.tsv": f"0.png\ten\ta dog with {SECRET}\n",
    "secret.yaml": f"seed: 1\nvse: {{model: {SECRET}}}\n", "secret.csv": f"file_name,text\n0.png,{SECRET}\n",
    "secret.jsonl": f'{{"file_name": "0.png", "text": "{SECRET}"}}\n',
    "secret.json": json.dumps({"images": [{"filename": "secret.png", "split": "val", "sentences": [{"raw": SECRET}]}]}),
}  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {  # audit event → which of its arguments are paths that change
    "os.mkdir": (0,), "os.rename": (0, 1), "os.remove": (0,), "os.rmdir": (0,), "os.symlink": (1,), "os.link": (1,),
    "os.truncate": (0,), "os.chmod": (0,), "os.chown": (0,), "os.utime": (0,), "shutil.rmtree": (0,),
    "shutil.move": (0, 1), "shutil.copytree": (1,), "shutil.copyfile": (1,),
}  # fmt: skip
_STRANGE = {
    "subprocess.Popen": "starts a program", "os.system": "starts a program", "os.exec": "starts a program",
    "os.posix_spawn": "starts a program", "socket.connect": "asks the network",
    "socket.getaddrinfo": "asks the network", "pickle.find_class": "reads a pickle",
}  # fmt: skip


class Outside:
    """A folder beside the given one, whose files nobody has been given.

    Args:
        folder: made and filled.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        for name, text in _TEXTS.items():
            (folder / name).write_text(text, encoding="utf-8")
        about = PngImagePlugin.PngInfo()
        about.add_text("Comment", SECRET)
        Image.new("RGB", (23, 19), (255, 0, 255)).save(folder / "secret.png", pnginfo=about)
        Image.new("RGB", (23, 19), (255, 0, 255)).save(folder / "secret.jpg", comment=SECRET)
        pq.write_table(pa.table({"image": [_png(number) for number in range(12)],
                                 "text": [f"the dog {number} of {SECRET}" for number in range(12)]}),
                       folder / "secret.parquet", compression="none")  # fmt: skip
        self._before = self._state()

    def _state(self) -> dict[str, tuple[int, int]]:
        return {one.name: (one.stat().st_size, one.stat().st_mtime_ns) for one in self.folder.iterdir()}

    def is_changed(self) -> bool:
        """Has a file been changed, added or deleted?"""
        return self._state() != self._before


def _png(number: int) -> dict[str, object]:
    Image.new("RGB", (23, 19), (20 * number, 0, 255)).save(held := io.BytesIO(), "PNG")
    return {"bytes": held.getvalue(), "path": None}


class Watch:
    """Sees every file that Python code opens, and what else it must not do, while a case is read.

    Args:
        report: is told what was seen, and where.
    """

    _active: "Watch | None" = None
    _hooked = False

    def __init__(self, report: Callable[[str, str], None]) -> None:
        self._report, self._writable, self._secret = report, tuple[str, ...](), ""

    @contextmanager
    def over(self, writable: tuple[Path, ...], outside: Path) -> Iterator[None]:
        """Watch what is done inside.

        Args:
            writable: folders that may be written to.
            outside: the folder that may not even be read.
        """
        self._writable = (*(f"{path.resolve()}{os.sep}" for path in writable), "/dev/", "/proc/")
        self._secret = f"{outside.resolve()}{os.sep}"
        if not Watch._hooked:
            sys.addaudithook(_hook)
            Watch._hooked = True
        Watch._active = self
        try:
            yield
        finally:
            Watch._active = None

    def see(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Judge one audit event."""
        if event in _STRANGE:
            self._report(_STRANGE[event], place_of(sys._getframe(2)))
            return
        changed = [arguments[number] for number in _CHANGES.get(event, ()) if number < len(arguments)]
        if event in ("os.remove", "os.rmdir", "os.mkdir") and arguments[-1] not in (-1, None):
            changed = []  # in an open folder: `shutil.rmtree` has been seen
        real_ones = [_real_name(path) for path in changed if _is_path(path)]  # a link itself is changed
        writes = event == "open" and (arguments[2] or 0) & _WRITING
        opened = os.path.realpath(os.fsdecode(arguments[0])) if event == "open" and _is_path(arguments[0]) else None
        for real in [*real_ones, *([opened] if opened is not None and writes else [])]:
            if not f"{real}{os.sep}".startswith(self._writable) and "__pycache__" not in real:
                self._report("writes outside of its folder", place_of(sys._getframe(2)))
        if opened is not None and not writes:
            real = opened
            if real.startswith(self._secret) or real == "/etc/passwd" or real.endswith("/environ"):
                self._report("reads outside of the given folder", place_of(sys._getframe(2)))


def _is_path(value: Any) -> bool:
    return isinstance(value, str | bytes | os.PathLike)


def _real_name(path: Any) -> str:
    folder, name = os.path.split(os.fsdecode(path))
    return f"{os.path.realpath(folder)}{os.sep}{name}"


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    watch = Watch._active
    if watch is None or (event != "open" and event not in _CHANGES and event not in _STRANGE):
        return
    Watch._active = None  # what is done here is not watched
    try:
        watch.see(event, arguments)
    finally:
        Watch._active = watch


def place_of(frame: FrameType | None) -> str:
    """The innermost line of our packages, `data/pictures/images.py:61`, in a stack."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(PRODUCT):
            return f"{Path(frame.f_code.co_filename).relative_to(ROOT)}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"


def use_folder(folder: Path) -> None:
    """Let temporary files and caches of libraries go to a folder, and no hub be asked."""
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.tempdir = str(folder)
    for name in ("TMPDIR", "HF_HOME", "HF_DATASETS_CACHE", "MPLCONFIGDIR"):
        os.environ[name] = str(folder)
    os.environ["BILDWORT_CACHE"] = str(folder)
    (folder / "precision.json").write_text(json.dumps({platform.node(): "32-true"}))  # is not measured
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("BILDWORT_JOBS", "1")
    os.environ.pop("BILDWORT_DATA", None)
