"""A live task whose process may die at any step, and an operator who decides about its one open lock."""

from tests.dying import Died
from tests.livetask import LiveTask
from unshard.operate.command import LockCommand
from unshard.operate.issuing import give, preview
from unshard.units.ddl import coordinate
from unshard.units.ddl.scene import LockView


def run(task: LiveTask) -> None:
    """Run until nothing changes, with a new process after each death."""
    while True:
        try:
            task.run()
            return
        except Died:
            task.restart()


def lock(task: LiveTask) -> LockView:
    """Return the only open lock."""
    scene = coordinate.observe(task.work().meta)
    (found,) = scene.locks
    return scene.view(found)


def order(task: LiveTask, given: LockCommand) -> None:
    """Issue a command after its dry run."""
    assert preview(task.work().meta, given)
    give(task.work().meta, given, "operator", "test", "because")
