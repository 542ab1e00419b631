"""Help that fits a narrow console, words that a shell completes, and names that were nearly right."""

from __future__ import annotations

import gc
import os
import re
import subprocess
from pathlib import Path
from unittest import mock

import pytest

from curvae import __version__
from curvae.cli import console
from curvae.cli import options as flags
from curvae.cli.commands import app
from running import SMALL, curvae, refused, write_table

COMMANDS = [(), *((name,) for name in app.commands)]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words) or "curvae")
def test_every_help_has_an_example_and_fits_80_columns(words):
    found = curvae(*words, "--help")
    assert found.code == 0 and max(map(len, found.out.splitlines())) <= 80
    example = re.search(rf"Example: curvae {' '.join(words)}.*", found.out)
    assert example and not found.out.endswith("...\n")
    assert "\x1b" not in found.out


def test_examples_name_options_that_exist():
    for name, command in app.commands.items():
        typed = command.epilog.partition("Example: ")[2].split()
        known = {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)}
        assert typed[:2] == ["curvae", name] and {word for word in typed if word.startswith("-")} <= known


def test_examples_with_a_trained_run_work_as_printed():
    with_gap = [None, *range(39)]
    write_table(Path("cells.csv"), type=["B", "T"] * 20, barcode=[f"cell{i}" for i in range(40)], d=with_gap)
    write_table(Path("new-cells.csv"), 5, seed=1, barcode=list("vwxyz"), d=20)
    fit = ("fit", "cells.csv", "--label", "type", "--id", "barcode", "--missing", "model", "-o", "runs/cells-1")
    assert curvae(*fit, *SMALL).code == 0
    for name in ("embed", "view", "evaluate", "sample", "explain", "impute"):
        typed = app.commands[name].epilog.partition("Example: curvae ")[2].split()
        found = curvae(*typed, *(("--samples", "5") if name in ("evaluate", "impute") else ()))
        assert found.code == 0, found.err


def test_the_version():
    assert curvae("--version").out == f"{__version__}\n"


def completed(monkeypatch, *words):
    """Words that bash is offered in place of the last of these."""
    monkeypatch.setenv("_CURVAE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(("curvae", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    found = curvae()
    assert found.code == 0 and not found.err
    return [tuple(line.split(",")) for line in found.out.splitlines()]


def test_a_shell_completes_commands_options_values_and_files(monkeypatch):
    assert completed(monkeypatch, "ex") == [("plain", "explain"), ("plain", "export")]
    assert ("plain", "--likelihood") in completed(monkeypatch, "fit", "--li")
    assert completed(monkeypatch, "fit", "--likelihood", "ga") == [("plain", "gaussian")]
    assert completed(monkeypatch, "fit", "ce") == [("file", "ce")]
    assert completed(monkeypatch, "embed", "ru") == [("file", "ru")]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_a_shell_must_be_told(shell):
    found = curvae("--completion", shell)
    assert found.code == 0 and f"_CURVAE_COMPLETE={shell}_complete" in found.out
    if shell == "bash":
        Path("script").write_text(found.out)
        assert subprocess.run(["bash", "-n", "script"], check=False).returncode == 0
    refused("--completion", "bsh", says=["--completion", "did you mean bash?"])


def test_names_that_were_nearly_right():
    write_table(Path("cells.csv"))
    Path("runs").mkdir()
    refused("fti", says=["did you mean fit?"])
    refused("fit", "cells.csv", "--lable", "x", says=["did you mean --label?"])
    refused("fit", "cells.csv", "--likelihood", "gausian", says=["'gausian'", "did you mean gaussian?"])
    refused("fit", "cels.csv", says=["did you mean 'cells.csv'?"])
    refused("embed", "rns", "cells.csv", says=["rns is not a folder", "did you mean 'runs'?", "Give the folder"])
    refused("judge", "cells.csv", "cels.csv", says=["cels.csv cannot be read", "did you mean 'cells.csv'?"])
    refused("paper", "tabel1", says=["there is no experiment 'tabel1'", "did you mean table1?"])
    refused("view", "entirely/elsewhere", says=["is not a folder; give the folder"])
    refused("embed", "cells.csv", "runs", says=["cells.csv is not a folder; give the folder"])  # the wrong way round


def test_colours_can_be_switched_off(monkeypatch):
    write_table(Path("cells.csv"))
    coloured = re.compile("\x1b\\[[0-9;]*3[0-9]")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert coloured.search(curvae("fit", "cells.csv", "-o", "a", *SMALL).err)
    monkeypatch.setenv("NO_COLOR", "1")
    found = curvae("fit", "cells.csv", "-o", "b", *SMALL)
    assert found.code == 0 and not coloured.search(found.err)


def test_commands_are_quoted_as_windows_takes_them():
    with mock.patch.object(flags.os, "name", "nt"):
        assert flags._typed_line(["curvae", "fit", "my cells.csv"]) == 'curvae fit "my cells.csv"'
    assert flags._typed_line(["curvae", "fit", "my cells.csv"]) == "curvae fit 'my cells.csv'"


def test_a_reader_that_left_is_known_on_windows_too():
    stream = console.SteadyStream(None)
    stream.error = OSError(22, os.strerror(22))
    assert not stream.reader_left
    with mock.patch.object(console.os, "name", "nt"):
        assert stream.reader_left


def test_modules_are_imported_without_the_garbage_collector(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in (("slow_module", ""), ("broken_module", "1 / 0\n")):
        (tmp_path / f"{name}.py").write_text(f"import gc\ncollected = gc.isenabled()\n{text}")
    assert console.load("slow_module").collected is False and gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        console.load("broken_module")
    assert gc.isenabled()
    gc.disable()
    try:
        console.load("curvae")
        assert not gc.isenabled()
    finally:
        gc.enable()
