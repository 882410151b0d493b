"""Processes that run at the same time: at each step, dice or a script decide which of them goes on.

Each process is a thread, and only one of them runs at any moment, so a game is the same in every run.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

from tests.scenario.world import Killed

Choice = Callable[[str, int, Sequence[int]], int]
"""Chooses who goes on from the name of a step, the process that has reached it, and those that have not ended."""


class Turns:
    """Runs processes in turn; `step` is called by the one that runs, between any two of its steps."""

    def __init__(self, choose: Choice) -> None:
        self._choose = choose
        self._gates: list[threading.Semaphore] = []
        self._left: list[int] = []
        self._present: int | None = None
        self._errors: list[BaseException] = []
        self._guard: int | None = None
        self._is_alone = False

    def run(self, actions: Sequence[Callable[[], object]]) -> None:
        """Run all processes to their ends; raises the first error."""
        self._gates = [threading.Semaphore(0) for _ in actions]
        self._left, self._errors = [*range(len(actions))], []
        threads = [threading.Thread(target=self._live, args=(number, one)) for number, one in enumerate(actions)]
        for thread in threads:
            thread.start()
        self._pass_to(0)
        for thread in threads:
            thread.join()
        self._present = None
        if self._errors:
            raise self._errors[0]

    @property
    def are_running(self) -> bool:
        return self._present is not None

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Let no other process go on inside the block, as a transaction that holds locks does."""
        is_alone, self._is_alone = self._is_alone, True
        try:
            yield
        finally:
            self._is_alone = is_alone

    def step(self, name: str) -> None:
        """Let another process go on, or the same one."""
        me = self._present
        if me is None or self._is_alone:
            return
        other = self._choose(name, me, self._left)
        if other != me and other in self._left:
            self._pass_to(other)
            self._gates[me].acquire()

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """Hold the guard of the target: another process that wants it waits for the end of the block."""
        me = self._present
        if me is None:
            yield
            return
        if self._guard == me:
            raise Killed("another process that waits for the guard of this one")
        while self._guard is not None:
            self._pass_to(self._guard)
            self._gates[me].acquire()
        self._guard = me
        try:
            yield
        finally:
            self._guard = None

    def _live(self, number: int, action: Callable[[], object]) -> None:
        self._gates[number].acquire()
        try:
            action()
        except Killed:
            pass
        except BaseException as error:
            self._errors.append(error)
        self._left.remove(number)
        if self._left:
            self._pass_to(self._left[0])

    def _pass_to(self, number: int) -> None:
        self._present = number
        self._gates[number].release()
