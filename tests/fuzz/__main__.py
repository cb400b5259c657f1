"""Read cases of a reader again, and print all that is said: `python -m tests.fuzz pictures 17,30-33`."""

import sys
import tempfile
from pathlib import Path

from tests.fuzz.bench import Bench, numbers
from tests.fuzz.guard import use_folder

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as _folder:
        use_folder(Path(_folder) / "bench" / "tmp")
        _bench = Bench(sys.argv[1], Path(_folder) / "bench")
        for _number in numbers(sys.argv[2]):
            _what, _case = _bench.run(_number, print)
            print("\n".join([*_case.said, *_case.traces, *map(str, _case.faults)]))
