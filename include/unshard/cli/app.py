"""Parse the command line, run one command and print its answer. Every exit has a code, and none prints a traceback."""

import argparse
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import NoReturn

import unshard
from unshard.adapters import tracebacks
from unshard.cli.commands import COMMANDS, COMMON, Command
from unshard.cli.console import Console, on_terminal
from unshard.errors import UnshardError
from unshard.errors.config import UsageWrong

INTERRUPTED = 130
TERMINATED = 143
VERBOSE = frozenset(("-v", "--verbose"))


class Terminated(KeyboardInterrupt):
    """The process got SIGTERM; it ends as after Ctrl-C, with another exit code."""


class _Parser(argparse.ArgumentParser):
    """Raises UsageWrong. argparse would exit with 2, which `unshard validate` uses for a difference."""

    def error(self, message: str) -> NoReturn:
        raise UsageWrong(message, self.prog)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = _Parser("unshard", description=unshard.__doc__, allow_abbrev=False)
    top.add_argument("--version", action="version", version=f"unshard {unshard.__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for command in COMMANDS:
        _add(
            commands.add_parser(
                command.name,
                help=command.about,
                description=f"{command.about[0].upper()}{command.about[1:]}.",
                epilog=f"example: {command.example}\nexit codes: {command.exits}",
                allow_abbrev=False,
                formatter_class=argparse.RawDescriptionHelpFormatter,
            ),
            command,
        )
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    command_line = sys.argv[1:] if arguments is None else list(arguments)
    console = Console(as_json="--json" in command_line, verbose=not VERBOSE.isdisjoint(command_line))
    try:
        with _terminable():
            return _run(command_line, console)
    except UnshardError as error:
        return console.failure(error)
    except KeyboardInterrupt as stop:
        what, code = ("terminated", TERMINATED) if isinstance(stop, Terminated) else ("interrupted", INTERRUPTED)
        print(f"unshard: {what}; the next run continues from here", file=console.err, flush=True)
        return _leave(code)
    except BrokenPipeError:
        # The reader of the output has closed it, as `| head` does, so there is nowhere to print a message.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        return console.failure(tracebacks.coded(error), error)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """Raise Terminated in the block at SIGTERM. A second SIGTERM ends the process at once."""
    is_ours = threading.current_thread() is threading.main_thread()
    if not is_ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def terminate(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _run(command_line: Sequence[str], console: Console) -> int:
    options = parser().parse_args(command_line)
    _log(options.verbose)
    command = next(command for command in COMMANDS if command.name == options.command)
    return console.answer(command.run(options, console))


def _add(parser: argparse.ArgumentParser, command: Command) -> None:
    for argument in (*command.arguments, *COMMON):
        parser.add_argument(*argument.names, help=argument.about, **argument.settings)


class _Form(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return on_terminal(super().format(record))


def _log(verbose: bool) -> None:
    """Log on stderr: the steps of unshard with --verbose, otherwise its errors only.

    Other packages log tracebacks of lost connections, which unshard handles or reports by a code. Some of them set the
    levels of their loggers themselves, so the handler leaves them out.
    """
    handler = logging.StreamHandler(sys.stderr)
    if not verbose:
        handler.addFilter(logging.Filter("unshard"))
    handler.setFormatter(_Form("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.ERROR, handlers=[handler])
    logging.getLogger("unshard").setLevel(logging.INFO if verbose else logging.ERROR)


def _leave(code: int) -> int:
    """End the process although threads are active. They can be interrupted safely at any point."""
    if threading.active_count() > 1 and threading.current_thread() is threading.main_thread():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code
