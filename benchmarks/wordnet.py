"""The nouns of WordNet below "mammal" as tables. `python -m benchmarks.wordnet [FOLDER]` writes them, by default here.

- `mammals.csv`: every noun with every more general one, columns child and parent (the hyponym relation, transitive);
- `mammal-nodes.csv`: every noun with the branch it belongs to;
- `mammals-tree.csv`: every noun with the one right above it, of several the nearest to "mammal".

Reads `data.noun` of WordNet 3.0 (Debian's package wordnet-base) in the folder that WNSEARCHDIR names, as WordNet's own
programs do. Format: the manual page wndb(5).
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Nouns", "find", "read", "write"]

ROOT = "mammal"
BRANCHES = (
    *("canine", "feline", "carnivore", "odd-toed ungulate", "even-toed ungulate", "rodent", "primate", "bat"),
    *("aquatic mammal", "marsupial", "lagomorph"),
)
OTHERS = "other mammal"


@dataclass(frozen=True)
class Nouns:
    """Nouns below a root, which is the first.

    Arguments:
        names: of the nouns, unique.
        above: for each noun those right above it; the first of them is the nearest to the root, and comes before it.
    """

    names: Sequence[str]
    above: Sequence[Sequence[int]]

    def ancestors(self) -> list[list[int]]:
        """All nouns above each."""
        found = []
        for parents in self.above:
            reached = list(parents)
            for noun in reached:  # it grows
                reached.extend(up for up in self.above[noun] if up not in reached)
            found.append(reached)
        return found

    def branches(self, known: Sequence[str] = BRANCHES) -> list[str]:
        """For each noun the lowest of these that it is or lies below."""
        found: list[str] = []
        for name, parents in zip(self.names, self.above, strict=True):
            found.append(name if name in known else found[parents[0]] if parents else OTHERS)
        return found


def find() -> Path:
    return Path(os.environ.get("WNSEARCHDIR", "/usr/share/wordnet")) / "data.noun"


def read(lines: Iterable[str], root: str = ROOT) -> Nouns:
    """Return the nouns below the first set of synonyms that begins with `root`, from lines of `data.noun`.

    Example:
        >>> lines = ["1 05 n 02 cat 0 true_cat 0 001 ~ 2 n 0000 | a feline", "2 05 n 01 wild_cat 0 000 | not tame"]
        >>> read(lines, "cat")
        Nouns(names=['cat', 'wild cat'], above=[[], [0]])
    """
    words, below = {}, {}
    for line in lines:
        if line.startswith("  "):  # the licence
            continue
        fields = line.partition("|")[0].split()
        offset, count = fields[0], int(fields[3], 16)
        words[offset] = fields[4].replace("_", " ")
        pointers = fields[5 + 2 * count :]
        below[offset] = [pointers[k + 1] for k in range(0, len(pointers), 4) if pointers[k] == "~"]
    start = next((offset for offset, word in words.items() if word == root), None)
    if start is None:
        sys.exit(f"there is no noun {root!r} in the file; give data.noun of WordNet")
    return _gather(start, words, below)


def _gather(start: str, words: Mapping[str, str], below: Mapping[str, Sequence[str]]) -> Nouns:
    places, above = {start: 0}, [list[int]()]
    order = [start]
    for place, offset in enumerate(order):  # it grows, level by level
        for lower in below[offset]:
            if lower not in places:
                places[lower] = len(order)
                order.append(lower)
                above.append([])
            above[places[lower]].append(place)
    seen: Counter[str] = Counter()
    names = []
    for offset in order:
        seen[word := words[offset]] += 1
        names.append(word if seen[word] == 1 else f"{word} ({seen[word]})")
    return Nouns(names, above)


def write(nouns: Nouns, folder: Path) -> None:
    """Write the three tables."""
    names, ancestors = nouns.names, nouns.ancestors()
    tables = {
        "mammals.csv": ("child", "parent", [(n, up) for n, above in enumerate(ancestors) for up in above]),
        "mammals-tree.csv": ("child", "parent", [(n, above[0]) for n, above in enumerate(nouns.above) if above]),
    }
    for file, (first, second, pairs) in tables.items():
        _table(folder / file, (first, second), [(names[a], names[b]) for a, b in pairs])
    _table(folder / "mammal-nodes.csv", ("noun", "branch"), list(zip(names, nouns.branches(), strict=True)))


def _table(path: Path, header: tuple[str, str], rows: Sequence[tuple[str, str]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def main(folder: Path) -> None:
    path = find()
    if not path.is_file():
        sys.exit("there is no data.noun of WordNet 3.0; apt-get install wordnet-base, or say where with WNSEARCHDIR")
    with path.open(encoding="ascii") as lines:
        write(read(lines), folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.wordnet", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, nargs="?", default=Path(), help="folder to write to")
    main(parser.parse_args().folder)
