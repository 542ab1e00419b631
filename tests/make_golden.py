"""Make `tests/data/golden`, the records of `tests/training/test_golden.py`: `python tests/make_golden.py [case …]`.

Made again only where a figure is meant to change; the change then says which, and why.
"""

from __future__ import annotations

import json
import sys

import torch

from training.test_golden import CASES, record, record_file


def make(names: list[str]) -> None:
    """Write the records of some cases, or of all."""
    torch.set_num_threads(1)
    for case in CASES:
        if not names or case.name in names:
            record_file(case).parent.mkdir(parents=True, exist_ok=True)
            record_file(case).write_text(json.dumps(record(case)) + "\n")


if __name__ == "__main__":
    make(sys.argv[1:])
