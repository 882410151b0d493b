"""Hundreds of the random games of test_random.py and test_random_operator.py, the same ones in every run."""

from collections.abc import Callable
from random import Random

import pytest

from tests.scenario.test_random import Game
from tests.scenario.test_random_operator import OrderedGame
from tests.suite.portions import portion

pytestmark = pytest.mark.slow

GAMES = portion(0, 20, 350)
KINDS: dict[str, Callable[[Random], Game]] = {
    "plain": lambda dice: Game(dice, forces=False),
    "with forced locks": lambda dice: Game(dice, forces=True),
    "with every order": OrderedGame,
}


@pytest.mark.parametrize("kind", KINDS)
def test_hundreds_of_games(kind: str) -> None:
    for seed in range(GAMES):
        game = KINDS[kind](Random(f"{kind} {seed}"))
        try:
            game.play()
            game.check()
        except BaseException as error:
            error.add_note(f"game {kind} {seed}")
            raise
