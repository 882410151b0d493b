"""A live task whose process may die at any step, and the operator who decides on its one open lock."""

from tests.dying import Died
from tests.livetask import LiveTask
from unshard.core.orders import Order
from unshard.units import coordinate
from unshard.units.orders import give, preview


def run(task: LiveTask) -> None:
    """Run until nothing moves, with a new process after each death."""
    while True:
        try:
            task.run()
            return
        except Died:
            task.restart()


def lock(task: LiveTask) -> coordinate.LockView:
    """Return the only open lock."""
    (found,) = coordinate.observe(task.work().meta)
    return found


def order(task: LiveTask, given: Order) -> None:
    """Give an order after its dry run."""
    assert preview(task.work().meta, given)
    give(task.work().meta, given, "operator", "test", "because")
