"""Commands in places that are not kind to them: no traceback, one line for what is wrong, and no training lost."""

from __future__ import annotations

import gc
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from unittest import mock

import pytest

from curvae.cli import console
from curvae.cli.commands import main
from processes import child
from running import SMALL, curvae, refused, undrawn, write_table


@pytest.fixture
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(Path("t.csv"), kind=["α", "β"] * 20)


FIT = ("fit", "t.csv", "--label", "kind", "-o", "run", *SMALL)


def program(*words, shell="", **more):
    """Run the program; `shell` is what a shell adds to the command."""
    command = f'"$0" -m curvae "$@" {shell}'
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command, sys.executable, *words], capture_output=True, check=False, **more
    )


def quiet_about(found):
    """No traceback, nor a warning of Python."""
    said = found.stdout + found.stderr
    assert not any(word in said for word in (b"Traceback", b"Exception", b"Error", b"Warning:")), said.decode()


# --- encodings ------------------------------------------------------------------------------------------------------

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}


@pytest.mark.skipif(os.name != "posix", reason="needs signals and files of Unix")
@pytest.mark.usefixtures("_here")
def test_every_command_prints_in_ascii():
    Path("t.csv").rename("café.csv")
    Path("edges.csv").write_text("".join(f"n{i},n{(i * i + 1) % 20}\n" for i in range(20)))
    commands = [
        ("fit", "café.csv", *FIT[2:]),
        ("fit", "café.csv", *FIT[2:], "--force", "--json"),
        ("embed", "run", "café.csv", "-o", "e.csv"),
        ("evaluate", "run", "café.csv", "--samples", "5"),
        ("sample", "run"),
        ("view", "run"),
        ("diagnose", "café.csv", "--label", "kind", "-o", "d.html"),
        ("graph", "edges.csv", "-o", "g", "--splits", "0", "--set", "hidden=8", "--epochs", "2"),
        ("cite",),
        ("--help",),
        ("fit", "--help"),
        ("paper", "list"),
        ("fit", "t.csv", "-c", "-1"),
        ("fit", "cafe.csv"),
    ]
    # One process for all commands, for starting takes longer than any of them.
    script = (
        "import sys; from curvae.cli.commands import main; from running import few_surrogates, undrawn\n"
        "for words in eval(sys.stdin.read()):\n"
        "    sys.argv = ['curvae', *words]\n"
        "    try:\n"
        "        with undrawn(), few_surrogates(): main(); code = 0\n"
        "    except SystemExit as end: code = end.code\n"
        "    print('exit', code, flush=True)\n"
        "print('slow', *{'scipy.stats', 'sympy', 'torch._dynamo'} & set(sys.modules))\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", script],
        input=ascii([tuple(word.encode().decode("ascii", "surrogateescape") for word in words) for words in commands]),
        env={**os.environ, **ASCII, "PYTHONPATH": os.pathsep.join(map(os.fsdecode, sys.path))},
        capture_output=True,
        check=False,
        encoding="ascii",
    )
    assert found.returncode == 0 and "Traceback" not in found.stderr, found.stderr
    codes = [int(line.split()[1]) for line in found.stdout.splitlines() if line.startswith("exit ")]
    assert codes == [0] * 12 + [2] * 2, found.stderr
    assert found.stdout.splitlines()[-1] == "slow", "modules that take seconds to import are not needed"
    start = found.stdout.index("{")
    summary, _ = json.JSONDecoder().raw_decode(found.stdout[start:])
    assert summary["run"] == "run"
    # What is written does not depend on the terminal: é is there as two bytes that ASCII does not know.
    name = json.loads(Path("run/config.json").read_text(encoding="utf-8"))["source"]["name"]
    assert os.fsencode(name.encode("ascii", "surrogateescape")) == "café.csv".encode()
    assert "α" in Path("run/embedding.csv").read_text(encoding="utf-8")


# --- output that fails ----------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="needs signals and files of Unix")
@pytest.mark.usefixtures("_here")
def test_a_full_disk_under_the_output_is_said():
    found = program("cite", shell="> /dev/full")
    quiet_about(found)
    assert found.returncode == 2
    assert found.stderr.startswith(b"curvae: cannot write to the output: No space left on device")
    assert found.stderr.count(b"\n") == 1


@pytest.mark.skipif(os.name != "posix", reason="needs signals and files of Unix")
@pytest.mark.usefixtures("_here")
def test_a_reader_that_leaves_is_nothing_to_talk_about():
    # A pipe that nobody reads from the start, since head may leave too late.
    for shell in ("> >(exec true)", "2>&1 | head -1"):
        found = program("fit", "--help", shell=f"{shell}; code=$?; wait; exit $code")
        quiet_about(found)
        assert found.returncode in (0, 141) and found.stderr == b""
    read, write = os.pipe()
    os.close(read)
    found = subprocess.run([sys.executable, "-m", "curvae", "cite"], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (found.returncode, found.stderr) == (141, b"")


@pytest.mark.skipif(os.name != "posix", reason="needs signals and files of Unix")
@pytest.mark.usefixtures("_here")
def test_closed_streams_lose_nothing():
    for words, code in ((("cite",), 0), (("fit", "t.csv", "--curvature", "-1"), 2)):
        found = program(*words, shell=">&- 2>&- <&-")
        assert (found.returncode, found.stdout, found.stderr) == (code, b"", b"")

    # The result is all that --json is asked for.
    found = program("cite", "--json", shell=">&-")
    assert (found.returncode, found.stdout, found.stderr) == (141, b"", b"")

    def work():
        os.closerange(0, 3)
        sys.stdin = sys.stdout = sys.stderr = None  # as in an interpreter that is started so
        sys.argv = ["curvae", *FIT]
        with undrawn():
            main()

    process = child(work)
    process.join(120)
    assert process.exitcode == 0
    assert json.loads(Path("run/config.json").read_text())["summary"]
    assert Path("run/report.html").read_bytes().startswith(b"<!")


class Gone(io.StringIO):
    """A terminal that is gone after some writes."""

    left = 3

    def write(self, text):
        self.left -= 1
        if self.left < 0:
            raise OSError(5, "Input/output error")
        return super().write(text)

    def isatty(self):
        return True


def streams(*given):
    """Commands write to these, and nothing else does: what is first imported meanwhile keeps the names of `io`."""
    return mock.patch("running.io", mock.Mock(StringIO=mock.Mock(side_effect=given)))


@pytest.mark.parametrize("left", [0, 3, 7])
@pytest.mark.skipif(os.name != "posix", reason="needs signals and files of Unix")
@pytest.mark.usefixtures("_here")
def test_a_terminal_that_is_gone_does_not_end_a_training(left):
    screen = Gone()
    screen.left = left
    with streams(io.StringIO(), screen):
        found = curvae(*FIT)
    assert found.code == 0 and "report: run/report.html" in found.out
    assert screen.left < 0
    assert json.loads(Path("run/config.json").read_text())["summary"]


@pytest.mark.skipif(os.name != "posix", reason="needs signals and files of Unix")
@pytest.mark.usefixtures("_here")
def test_an_output_that_is_gone_does_not_end_a_training():
    """What was trained is there, and the exit code says that the rest was not told."""
    output = Gone()
    output.left = 0
    with streams(output, io.StringIO()):
        found = curvae(*FIT)
    assert found.code == 2 and found.err.splitlines()[-1].startswith("curvae: cannot write to the output: Input/output")
    assert json.loads(Path("run/config.json").read_text())["summary"]


# --- signals --------------------------------------------------------------------------------------------------------


def started(words):
    """The program, in a process that has imported everything already."""

    def work():
        for number, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(name, os.O_CREAT | os.O_WRONLY), number)
        sys.argv = ["curvae", *words]
        main()

    process = child(work)

    def end():
        process.join(120)
        return process.exitcode

    return process.pid, end


@pytest.mark.parametrize(
    ("signals", "code", "word"),
    [
        ([signal.SIGTERM], 143, "terminated"),
        ([signal.SIGINT, signal.SIGINT], 130, "interrupted"),
        ([signal.SIGINT] * 5, 130, "interrupted"),
    ],
    ids=["SIGTERM", "SIGINT twice", "SIGINT five times"],
)
@pytest.mark.skipif(os.name != "posix", reason="needs signals and files of Unix")
@pytest.mark.usefixtures("_here")
def test_signals_end_a_training_that_can_be_resumed(often, signals, code, word):
    pid, end = started((*FIT[:-4], "--epochs", "100000", "--batch-size", "16"))
    checkpoint, began = Path("run/checkpoint/state.safetensors"), time.monotonic()
    while not checkpoint.exists():
        assert time.monotonic() < began + 120, Path("err").read_text()
        time.sleep(0.05)
    for number in signals:
        with suppress(ProcessLookupError):  # it has ended already
            os.kill(pid, number)
        time.sleep(0.02)
    returned = end()
    out, err = (Path(name).read_text() for name in ("out", "err"))
    # Once Python is on its way out, a signal is left to the system.
    assert returned in (code, *(-number for number in signals[1:])), err
    assert out == "" and "Traceback" not in err and "Exception" not in err, err
    assert err.splitlines()[-1].startswith(f"curvae: {word}; ") and err.splitlines()[-1].endswith("--resume")
    assert err.count(word) == 1
    trained = json.loads(Path("run/metrics.jsonl").read_text().splitlines()[-1])["epoch"]
    description = json.loads(Path("run/config.json").read_text())
    description["config"]["training"]["epochs"] = trained + 2
    Path("run/config.json").write_text(json.dumps(description))
    assert curvae("fit", "t.csv", "-o", "run", "--resume", "-q").code == 0
    assert not Path("run/.lock").exists()


# --- names and places -----------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="needs signals and files of Unix")
@pytest.mark.usefixtures("_here")
def test_a_working_directory_that_is_gone():
    Path("gone").mkdir()
    for words in (FIT, ("cite",)):
        Path("gone").mkdir(exist_ok=True)
        found = subprocess.run(
            ["bash", "-c", 'cd gone; rmdir ../gone; "$0" -m curvae "$@"', sys.executable, *words],
            capture_output=True,
            check=False,
        )
        quiet_about(found)
        assert found.returncode == 2
        assert found.stderr == (
            b"curvae: the working directory cannot be used (No such file or directory); change to another folder\n"
        )


@pytest.mark.skipif(os.name != "posix", reason="needs signals and files of Unix")
@pytest.mark.usefixtures("_here")
def test_a_line_break_in_a_name_breaks_no_line():
    refused("fit", "no\nwhere.csv", says=["no\\nwhere.csv"])
    refused("embed", "no\nwhere", "t.csv", says=["no\\nwhere is not a folder"])
    refused("fit", "t.csv", "--label", "a\r\x1b[2Jb", says=["x1b"])
    Path("t.csv").rename("a\nb.csv")
    found = curvae("fit", "a\nb.csv", "--label", "kind", *SMALL)
    assert found.code == 0
    assert [line.split(":")[0] for line in found.out.splitlines()] == ["report", "embedding", "next"]
    assert "run folder runs/a\\nb-1\n" in found.err
    found = curvae("embed", "runs/a\nb-1", "a\nb.csv")
    assert found.code == 0 and found.out.splitlines()[0] == "embedding: a\\nb-embedding.csv"


@pytest.mark.skipif(os.name != "posix", reason="needs signals and files of Unix")
@pytest.mark.usefixtures("_here")
def test_dangling_links_are_called_so():
    Path("link").symlink_to("nowhere")
    Path("link.csv").symlink_to("nowhere.csv")
    Path("link.html").symlink_to("nowhere.html")
    says = ["is a dangling link to nowhere", "fix the link"]
    refused("embed", "link", "t.csv", says=["link", *says])
    refused("fit", "t.csv", "--label", "kind", "-o", "link", *SMALL, says=says)
    refused("fit", "t.csv", "-o", "link", "--resume", says=says)
    refused("diagnose", "t.csv", "--label", "kind", "-o", "link.html", says=says)
    assert curvae(*FIT, "-q").code == 0
    refused("view", "run", "--data", "link.csv", "--show", "a", says=says)
    refused("diagnose", "run", "--tree", "link", says=says)
    Path("one.csv").symlink_to("two.csv")
    Path("two.csv").symlink_to("one.csv")
    refused("fit", "one.csv", says=["one.csv is a loop of symbolic links; fix the link"])
    refused("embed", "run", "one.csv", says=["one.csv is a loop of symbolic links"])
    refused("fit", "t.csv", "--label", "kind", "-o", "one.csv", says=["one.csv is a loop of symbolic links"])


@pytest.mark.parametrize(("given", "found"), [(None, "passive"), ("active", "active")])
@pytest.mark.skipif(os.name != "posix", reason="needs signals and files of Unix")
@pytest.mark.usefixtures("_here")
def test_threads_that_wait_leave_their_cores_alone(monkeypatch, given, found):
    """Unless it is set otherwise; the library that starts them reads that when torch is imported."""
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    else:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    show = "import os, sys; from curvae.cli.commands import main; sys.argv[1:] = ['cite']; main(); "
    show += "print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)
    assert ended.stdout.split()[-2:] == [found, "False"]


# --- names that were nearly right, colours, Windows ------------------------------------------------------------------


@pytest.fixture
def _narrow(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.usefixtures("_narrow")
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


@pytest.mark.usefixtures("_narrow")
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


@pytest.mark.usefixtures("_narrow")
def test_a_reader_that_left_is_known_on_windows_too():
    stream = console.SteadyStream(None)
    stream.error = OSError(22, os.strerror(22))
    assert not stream.reader_left
    with mock.patch.object(console.os, "name", "nt"):
        assert stream.reader_left


@pytest.mark.usefixtures("_narrow")
def test_modules_are_imported_without_the_garbage_collector(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, text in (("slow_module", ""), ("other_module", ""), ("broken_module", "1 / 0\n")):
        (tmp_path / f"{name}.py").write_text(f"import gc\ncollected = gc.isenabled()\n{text}")
    assert console.LazyModule("slow_module").collected is False and gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        console.LazyModule("broken_module").collected  # noqa: B018 - what is looked up is imported
    assert gc.isenabled()
    gc.disable()
    try:
        assert console.LazyModule("other_module").collected is False
        assert not gc.isenabled()
    finally:
        gc.enable()
