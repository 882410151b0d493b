"""The command line: parsing, exit codes, output to stdout and stderr."""

import io
import json
import re
import signal
import subprocess
import sys
import tempfile
import threading
from argparse import Namespace
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import cast

import pytest

import unshard
from unshard.adapters import tracebacks
from unshard.cli import app, main, progress
from unshard.cli.commands import COMMANDS, COMMON, Command
from unshard.cli.console import Answer, Console, table
from unshard.cli.run import Errors
from unshard.config import load_task
from unshard.core.full.progress import Progress
from unshard.core.model import Location
from unshard.core.shown import amount, size
from unshard.errors.config import UsageWrong
from unshard.errors.rows import Collision
from unshard.errors.source import ServerUnreachable
from unshard.units.ddl.scene import LockView
from unshard.units.task.live import Trouble
from unshard.units.task.run import Outcome as RunOutcome
from unshard.units.task.status import lag_bytes

PAGE = (Path(__file__).parents[2] / "docs/cli.md").read_text()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_and_option_is_documented(command: Command) -> None:
    section = re.search(rf"^## `unshard {command.name}\b.*?(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section
    missing = [
        name
        for argument in command.arguments
        for name in argument.names
        if f"`{name}" not in section[0] and name.upper() not in section[0].upper().splitlines()[0]
    ]
    assert not missing
    assert all(f"`{argument.names[0]}`" in PAGE for argument in COMMON)
    assert f"\n    {command.example.split(' --')[0]}" in section[0]


@pytest.mark.parametrize("command", ["status", "locks"])
def test_a_command_that_shows_state_imports_little(command: str) -> None:
    code = (
        "import sys; from unshard.cli.commands import COMMANDS\n"
        f"next(each for each in COMMANDS if each.name == {command!r}).run\n"
        "heavy = {'airflow', 'pyspark', 'pyarrow', 'numpy', 'pandas', 'sqlglot', 'rich', 'requests'}\n"
        "ours = {'unshard.binlog.decoder', 'unshard.cli.run', 'unshard.core.join.group', 'unshard.units.work',"
        " 'unshard.core.ddl.statement'}\n"
        "print(sorted((heavy | ours) & set(sys.modules)))"
    )
    path = {"PYTHONPATH": str(Path(unshard.__file__).parents[1])}
    run = subprocess.run([sys.executable, "-c", code], env=path, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_help_has_an_example_and_the_exit_codes(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command.name, "--help"])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    assert command.example in said and command.exits in said


def test_documentation_names_no_command_that_is_gone() -> None:
    assert set(re.findall(r"^## `unshard ([\w-]+)", PAGE, re.MULTILINE)) == {command.name for command in COMMANDS}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_examples_can_be_parsed(command: Command) -> None:
    words = re.findall(r"'[^']*'|\S+", command.example)[1:]
    assert app.parser().parse_args(words).command == command.name


WRONG = [
    ([], "required"),
    (["fly"], "fly"),
    (["run"], "TASK.yaml"),
    (["run", "t.yaml", "--until", "noon"], "noon"),
    (["validate", "t.yaml", "--threads", "0"], "0"),
    (["status", "t.yaml", "--js"], "--js"),
]


@pytest.mark.parametrize(("given", "word"), WRONG, ids=[" ".join(given) or "nothing" for given, _ in WRONG])
def test_wrong_usage_is_a_coded_error_and_not_exit_2(given, word, capsys) -> None:
    assert main(given) == 1
    said = capsys.readouterr()
    assert said.out == "" and "[US-1901]" in said.err and word in said.err and "Traceback" not in said.err


def test_wrong_usage_is_json_when_asked(capsys) -> None:
    assert main(["run", "--json"]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["error"]["code"] == "US-1901" and said.err == ""


def test_missing_task_file_is_a_coded_error(tmp_path: Path, capsys) -> None:
    for command in COMMANDS:
        rest = ["some-lock"] if command.name == "unlock" else []
        assert main([command.name, str(tmp_path / "none.yaml"), *rest, "--json"]) == 1
        said = capsys.readouterr()
        assert re.fullmatch(r"US-1\d{3}", json.loads(said.out)["error"]["code"]) and said.err == ""


def test_verbose_shows_the_traceback(tmp_path: Path, capsys) -> None:
    assert main(["check", str(tmp_path / "none.yaml"), "--verbose"]) == 1
    assert "Traceback" in capsys.readouterr().err


def replaced(monkeypatch: pytest.MonkeyPatch, function) -> None:
    command = replace(COMMANDS[0], module="unshard.cli.check")
    monkeypatch.setattr(app, "COMMANDS", (command,))
    monkeypatch.setattr("unshard.cli.check.check", function)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_a_command_with_a_message_and_the_usual_code(sent, code, monkeypatch, capsys) -> None:
    def signalled(options: Namespace, console: Console) -> Answer:
        signal.raise_signal(sent)
        raise AssertionError("not reached")

    replaced(monkeypatch, signalled)
    # With threads of earlier tests, such as Spark's, the process would end here.
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    before = signal.getsignal(signal.SIGTERM)
    # A shell that starts the tests in the background lets them ignore SIGINT.
    of_shell = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["check", "t.yaml"]) == code
    finally:
        signal.signal(signal.SIGINT, of_shell)
    assert "next run continues from here" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_handler_of_the_process_for_sigterm_stays(monkeypatch) -> None:
    got = []
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    replaced(monkeypatch, lambda options, console: signal.raise_signal(signal.SIGTERM) or Answer({}, []))
    before = signal.signal(signal.SIGTERM, lambda *_: got.append(1))
    try:
        assert main(["check", "t.yaml"]) == 0 and got == [1]
    finally:
        signal.signal(signal.SIGTERM, before)


SECRET = "s3cret-word"


def broken(options: Namespace, console: Console) -> Answer:
    tracebacks.hide(SECRET)
    raise ValueError(f"no columns in {SECRET} at postgres://root:other-{SECRET[:6]}@db")


@pytest.mark.parametrize("wanted", [(), ("--verbose",)], ids=["plain", "verbose"])
def test_an_unexpected_error_has_a_code_and_its_traceback_is_in_a_file(wanted, monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(tracebacks, "_secrets", set())  # other tests of this process have passwords such as "unshard"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["/bin/unshard", "check", "t.yaml"])
    replaced(monkeypatch, broken)
    assert main(["check", "t.yaml", *wanted]) == 1
    said = capsys.readouterr()
    (file,) = tmp_path.iterdir()
    assert said.out == "" and "[US-7012] unexpected ValueError: no columns" in said.err and str(file) in said.err
    assert ("Traceback" in said.err) == bool(wanted)
    written = file.read_text()
    assert "Traceback" in written and "line" in written and "ValueError: no columns in" in written
    assert "unshard check t.yaml" in written and unshard.__version__ in written
    assert "s3cret" not in written + said.err and file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("package", "module"),
    [
        ("pymysqlreplication", "unshard.adapters.referencedecoder"),
        ("sqlglot", "unshard.core.sql.lexer"),
        ("fsspec", "unshard.adapters.hdfs"),
    ],
)
def test_a_missing_package_is_no_defect(package: str, module: str, monkeypatch, tmp_path, capsys) -> None:
    def check(options: Namespace, console: Console) -> Answer:
        import_module(module)
        raise AssertionError

    for name in [name for name in sys.modules if name == module or name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    replaced(monkeypatch, check)
    assert main(["check", "t.yaml"]) == 1
    assert f"[US-7014] the Python module {package}" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_a_short_password_hides_no_letters(monkeypatch) -> None:
    monkeypatch.setattr(tracebacks, "_secrets", set())
    tracebacks.hide("s")
    assert "one says ***" in tracebacks.text_of(ValueError("one says s"))
    tracebacks.hide("says")
    assert "one *** ***" in tracebacks.text_of(ValueError("one says s"))


def test_an_unexpected_error_is_told_although_no_file_can_be_written(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    replaced(monkeypatch, broken)
    assert main(["check", "t.yaml", "--json"]) == 1
    said = capsys.readouterr()
    error = json.loads(said.out)["error"]
    assert error["code"] == "US-7012" and "could not be written" in error["message"] and said.err == ""


LOGGED = """
import logging
from unshard.cli import main
main(["check", "/nowhere.yaml"])
try:
    1 // 0
except ZeroDivisionError:
    for name in ("sqlalchemy.pool.impl.QueuePool", "py4j", "root", "unshard.x"):
        log = logging.getLogger(None if name == "root" else name)
        log.error("lost by %s", name, exc_info=not name.startswith("un"))
"""


def test_loggers_of_other_packages_write_no_traceback() -> None:
    """They log connections that are lost and replaced, in runs that succeed."""
    done = subprocess.run([sys.executable, "-c", LOGGED], capture_output=True, text=True, check=True)
    assert "US-1002" in done.stderr and "lost by unshard.x" in done.stderr
    assert done.stderr.count("lost by") == 1 and "Traceback" not in done.stderr


def test_the_traceback_names_the_causes_without_their_passwords() -> None:
    tracebacks.hide(SECRET)
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            raise ValueError("outer") from error
    except ValueError as error:
        text = tracebacks.text_of(error)
    assert text.index("KeyError") < text.index("ValueError: outer") and "s3cret" not in text


def collision(target: str) -> Trouble:
    error = Collision(target, "id=7", "s1:a.orders_1", "shard s2:a.orders_2")
    return Trouble(f"s1, {target}", error, False)


def test_the_hint_of_several_errors_is_printed_once() -> None:
    errors = Errors()
    said = [errors.given_up(collision("a.orders"))]
    said += [errors.final(collision(target)) for target in ("a.orders", "a.customers")]
    assert said == [
        f"s1, a.orders: {collision('a.orders').error}, not tried any more",
        "error: s1, a.orders: [US-6006] see its message above",
        "error: s1, a.customers: [US-6006] target table a.customers has id=7 already, from shard s2:a.orders_2; "
        "shard s1:a.orders_1 has it too",
    ]


def test_an_error_that_remains_after_all_retries_is_printed_once() -> None:
    errors = Errors()
    trouble = Trouble("s1", ServerUnreachable("source s1", "u@h:1", "refused"), True)
    said = [errors.retried(trouble), errors.retried(trouble), errors.given_up(trouble), errors.final(trouble)]
    assert said == [
        f"s1: {trouble.error}, trying again",
        "s1: [US-2001] came again, trying again",
        "s1: [US-2001] came again, not tried any more",
        "error: s1: [US-2001] see its message above",
    ]


def test_exit_status_of_a_run() -> None:
    suspended, failure = (collision("a.orders"),), (Trouble("s1", ServerUnreachable("s1", "h", "no"), False),)
    lock = cast(LockView, object())
    assert [
        RunOutcome((), locks, failures, stops, 1.0).exit_code
        for locks in ((), (lock,))
        for failures in ((), failure)
        for stops in ((), suspended)
    ] == [0, 4, 1, 1, 3, 4, 1, 1]


def test_json_is_the_only_thing_on_stdout(monkeypatch, capsys) -> None:
    def chatty(options: Namespace, console: Console) -> Answer:
        console.note("on the way")
        console.warn(["mind"])
        return Answer({"a": 1}, ["one"], 3)

    replaced(monkeypatch, chatty)
    assert main(["check", "t.yaml", "--json"]) == 3
    said = capsys.readouterr()
    assert json.loads(said.out) == {"a": 1} and said.err == "warning: mind\n"
    assert main(["check", "t.yaml"]) == 3
    assert capsys.readouterr().out == "on the way\none\n"


def test_a_line_is_written_in_one_piece() -> None:
    """Sources print side by side: a line and its newline must not be separated."""
    written: list[str] = []

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return super().write(text)

    console = Console(given_out=Out(), given_err=Out())
    console.note("s1: dump begins")
    console.warn(["s1 is slow"])
    assert [text for text in written if text] == ["s1: dump begins\n", "warning: s1 is slow\n"]


def test_version(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"unshard {unshard.__version__}\n"


WIDE = [("s1", "mysql-bin.000001:1234", "a rather long cell that has many words in it"), ("s2", None, "short")]


def test_a_table_in_a_narrow_terminal_wraps_its_last_column_at_words() -> None:
    assert table(("SOURCE", "POSITION", "FOUND"), WIDE, 60, after=("-> do it", "")) == [
        "SOURCE  POSITION               FOUND",
        "s1      mysql-bin.000001:1234  a rather long cell that has",
        "                               many words in it",
        "-> do it",
        "s2      -                      short",
    ]


def test_a_table_without_room_for_its_last_column_has_a_line_for_each_cell() -> None:
    assert table(("SOURCE", "POSITION", "FOUND"), WIDE, 40, after=("-> do it", "")) == [
        "SOURCE    s1",
        "POSITION  mysql-bin.000001:1234",
        "FOUND     a rather long cell that has",
        "          many words in it",
        "-> do it",
        "",
        "SOURCE    s2",
        "POSITION  -",
        "FOUND     short",
    ]


@pytest.mark.parametrize("width", [None, *range(30, 130)])
def test_no_width_of_a_terminal_breaks_a_word(width: int | None) -> None:
    words = {word for row in WIDE for cell in row if cell for word in cell.split()}
    lines = table(("SOURCE", "POSITION", "FOUND"), WIDE, width)
    assert words <= {word for line in lines for word in line.split()}
    assert width is None or max(map(len, lines)) <= max(width, 34)


def test_a_secret_is_masked_before_its_statement_is_wrapped() -> None:
    ddl = "CREATE USER u IDENTIFIED BY 'hidden-word' and some more words after it"
    assert not any("hidden" in line for width in range(30, 90) for line in table(("A", "DDL"), [("x", ddl)], width))


def test_table_lines_up_and_has_no_trailing_blanks() -> None:
    assert table(("A", "LONGER", "C"), [("x\ny", None, ""), ("longest", 1, "end")]) == [
        "A        LONGER  C",
        "x y      -       -",
        "longest  1       end",
    ]


def test_numbers_for_people() -> None:
    assert (amount(1234567), size(1023), size(1536), size(3 << 40)) == ("1,234,567", "1023 B", "1.5 KiB", "3.0 TiB")


def test_failure_names_code_and_remedy() -> None:
    out, err = io.StringIO(), io.StringIO()
    error = UsageWrong("no", "unshard run")
    assert Console(given_out=out, given_err=err).failure(error) == 1
    assert (out.getvalue(), err.getvalue()) == ("", f"unshard: {error}\n")


class Terminal(io.StringIO):
    """A terminal, as far as the display checks."""

    def isatty(self) -> bool:
        return True


def shown(out: io.StringIO) -> str:
    """Run a full load of two sources with a display; one of them was loaded long ago."""
    reads = []

    def read() -> progress.Figures:
        reads.append(1)
        if len(reads) == 2:
            raise UsageWrong("the target is down for a moment", "run")
        some = Progress(2, 1, 1000, 2048, 50, 200, 1024, 5)
        dump, load = [(some, Progress(2)), (some, some), (Progress(2, 2, 2000, percent=100), some)][
            min(len(reads), 3) - 1
        ]
        return {"s1": (dump, load), "old": (Progress(5, 5), Progress(5, 5))}

    with progress.Display(Console(given_out=out), 0.02, 0.02) as display:
        display.follow(read)
        display.tell("window 7")
        while len(reads) < 4:
            threading.Event().wait(0.005)
        display.tell("window 8")
    return out.getvalue()


def test_progress_is_lines_where_no_terminal_is() -> None:
    said = shown(io.StringIO())
    assert "s1: dumped 1/2 chunks, 50 %, 1,000 rows, 2.0 KiB, 200 rows/s, 1.0 KiB/s, 5 s left\n" in said
    assert "s1: loaded 1/2 chunks, 50 %" in said and "window 8\n" in said and "old" not in said
    assert "\x1b" not in said


def test_progress_is_bars_on_a_terminal(monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    said = shown(Terminal())
    assert "\x1b" in said and "s1 dump" in said and "200 rows/s" in said and "window 8" in said and "old" not in said


LOGS = {"b.000009": 500, "b.000010": 1000, "b.000011": 700}
LAGS = [
    (("b.000010", 100), ("b.000010", 400), 300),
    (("b.000009", 100), ("b.000011", 50), 1450),
    (("b.000011", 50), ("b.000010", 900), 0),
    (("b.000008", 100), ("b.000009", 50), 50),
]


@pytest.mark.parametrize(("position", "end", "want"), LAGS)
def test_lag_in_bytes(position: tuple[str, int], end: tuple[str, int], want: int) -> None:
    assert lag_bytes(LOGS, Location(*position), Location(*end)) == want


def test_warnings_about_values_without_effect_are_one_line_with_their_number(tmp_path: Path) -> None:
    (tmp_path / "sources").mkdir()
    (tmp_path / "sources/s1.yaml").write_text("source-id: s1\nfrom: {host: h, user: u}\n")
    (tmp_path / "t.yaml").write_text(
        "name: t\ntask-mode: all\ntarget-database: {host: t, user: u, max-allowed-packet: 7}\n"
        "mysql-instances: [{source-id: s1, syncer: {batch: 100, queue-size: 9}}]\n"
    )
    task = load_task(tmp_path / "t.yaml")

    def printed(verbose: bool) -> list[str]:
        out = io.StringIO()
        Console(verbose=verbose, given_err=out).warn_of(task)
        return out.getvalue().splitlines()

    (idle,) = printed(verbose=False)
    assert idle.endswith("t.yaml: 3 values of the files have no effect here; `unshard check -v` lists them")
    assert printed(verbose=True) == [f"warning: {text}" for text in task.warnings] and len(task.warnings) == 3


@pytest.mark.parametrize("count", [1, 2, 3])
def test_warnings_about_passwords_are_one_line_where_a_task_begins(tmp_path: Path, count: int) -> None:
    (tmp_path / "sources").mkdir()
    for number in range(3):
        password = ", password: secret" if number < count else ""
        (tmp_path / f"sources/s{number}.yaml").write_text(
            f"source-id: s{number}\nfrom: {{host: h, user: u{password}}}\n"
        )
    (tmp_path / "t.yaml").write_text(
        "name: t\ntask-mode: all\ntarget-database: {host: t, user: u}\n"
        "mysql-instances: [{source-id: s0}, {source-id: s1}, {source-id: s2}]\n"
    )
    task = load_task(tmp_path / "t.yaml")

    def printed(*, begins: bool, verbose: bool = False) -> list[str]:
        out = io.StringIO()
        Console(verbose=verbose, given_err=out).warn_of(task, begins=begins)
        return out.getvalue().splitlines()

    (line,) = printed(begins=True)
    assert ("the file contains a password" if count == 1 else f"t.yaml: {count} passwords are in the files") in line
    assert printed(begins=False) == []
    assert len(printed(begins=False, verbose=True)) == count == len(task.warnings)


def test_the_short_form_of_verbose(tmp_path: Path, capsys) -> None:
    assert main(["check", str(tmp_path / "none.yaml"), "-v"]) == 1
    assert "Traceback" in capsys.readouterr().err
