"""Play all cases and random games against the prototype and print the counts.

python -m prototype.play                 all cases, situations, 1,000 games of each kind
python -m prototype.play --games 50      fewer games
python -m prototype.play --verbose       every line that differs
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable

from prototype import cases, games, scenarios, situations
from prototype.group import Policy

VERBOSE = False


def tell(text: str) -> None:
    if VERBOSE:
        print(f"    {text}")


def outcome(play: Callable[[], object]) -> str:
    try:
        play()
    except cases.Better:
        return "better"
    except Exception as error:  # noqa: BLE001
        return f"wrong: {type(error).__name__} {str(error)[:200]}"
    return "right"


def json_cases(chosen: list, policy: Policy, in_order: bool) -> Counter[str]:
    """A case is right if it is right at all three paces."""
    found = Counter[str]()
    for case in chosen:
        if case["id"] in cases.NOT_ON_PAPER:
            found["not played"] += 1
            tell(f"{case['id']}: not played: {cases.NOT_ON_PAPER[case['id']]}")
            continue
        ends = {
            outcome(lambda c=case, p=pace: cases.judge(c, cases.Play(c, policy, in_order, p).play()))
            for pace in cases.PACES
        }
        result = ends.pop() if len(ends) == 1 else f"wrong: {ends}"
        if why := cases.is_weak(case):
            result = "passes, shows nothing"
            tell(f"{case['id']}: {result}: {why}")
        elif result != "right":
            tell(f"{case['id']}: {result}")
        found[result.partition(":")[0]] += 1
    return found


def text_cases(in_order: bool) -> Counter[str]:
    found = Counter[str]()
    for path in scenarios.CASES:
        if path.stem in scenarios.NOT_OF_THE_GROUP:
            found["not played"] += 1
            tell(f"{path.stem}: not played: {scenarios.NOT_OF_THE_GROUP[path.stem]}")
            continue
        differs = scenarios.played(path, in_order).differs
        result = "right"
        if differs:
            only_waits = all(line.startswith(("lock", "nothing waits")) for line in differs)
            result = "better" if only_waits else "wrong"  # all lines about rows, DDL and held rows are as expected
            for line in differs:
                tell(f"{path.stem}: {result}: {line}")
        found[result] += 1
    return found


def optimistic() -> Counter[str]:
    """The cases, ways out and designs of the unit tests of core/join, with the world of the prototype."""
    from tests.unit.join import test_cases, test_design

    found = Counter[str]()
    for case in test_cases.CASES:
        ends = {outcome(lambda c=case, p=pace: test_cases.test_case(c, p)) for pace in cases.PACES}
        found["cases " + ("right" if ends == {"right"} else "wrong")] += 1
        if ends != {"right"}:
            tell(f"{case['id']}: {ends}")
    for name, ways in test_cases.WAYS_OUT.items():
        for way in ways:
            found[
                "ways out " + outcome(lambda n=name, w=way: test_cases.test_a_conflict_ends(n, w)).partition(":")[0]
            ] += 1
    for name in test_design.SCRIPTS:
        found["designs " + outcome(lambda n=name: test_design.test_it_ends_equal(n)).partition(":")[0]] += 1
    own = "test_a_barrier_concerns_only_its_statement"  # its last step is a policy here: see the situations
    for name in (n for n in dir(test_design) if n.startswith("test_") and n not in ("test_it_ends_equal", own)):
        found["designs " + outcome(getattr(test_design, name)).partition(":")[0]] += 1
    return found


def situations_played() -> Counter[str]:
    found = Counter[str]()
    for name, play in situations.PLAYED.items():
        result = outcome(play).partition(":")[0]
        notion = situations.NOTION[name]
        found[f"{result}, {'with a notion that stays' if notion else 'no extra notion'}"] += 1
        tell(f"{result}: {name}{f' [{notion}]' if notion else ''}")
    return found


def random_games(count: int) -> None:
    from tests.unit.join import test_rollouts

    found = Counter(outcome(lambda n=n: test_rollouts.play(n)).partition(":")[0] for n in range(count))
    print(f"games JOIN, canaries and reversals:       {dict(found)}")
    kinds = {
        "games TOGETHER, all shards agree:        ": lambda n: games.Together(n, False),
        "games TOGETHER, unlock and exempt:       ": lambda n: games.Together(n, True),
        "games TOGETHER, different DDL, ways out: ": games.Different,
        "games with changes of mode:              ": games.Switching,
    }
    for name, make in kinds.items():
        ends, commands = Counter[str](), Counter[str]()
        for number in range(count):
            game = make(number)
            end = games.outcome(game, number)
            ends[end.split(" ")[0] if end.startswith("WRONG") else end] += 1
            commands.update(getattr(game, "counts", {}))
            if end.startswith("WRONG"):
                tell(f"{name.strip()} {number}: {end}")
        print(f"{name} {dict(ends)} {dict(commands) or ''}", flush=True)


def main() -> None:
    global VERBOSE
    parser = argparse.ArgumentParser()
    parser.add_argument("--games", type=int, default=1000)
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    VERBOSE = given.verbose
    random.seed(0)
    print(f"optimistic, policy JOIN:                  {dict(optimistic())}", flush=True)
    for in_order in (True, False):
        order = "one DDL of each shard at a time" if in_order else "any order"
        print(f"pessimistic, policy TOGETHER, {order}:")
        print(
            f"  tests/integration/ddl_cases.json        {dict(json_cases(cases.PESSIMISTIC, Policy.TOGETHER, in_order))}",
            flush=True,
        )
        print(f"  tests/scenario/cases                    {dict(text_cases(in_order))}", flush=True)
    print(f"situations of the pessimistic code:       {dict(situations_played())}", flush=True)
    random_games(given.games)


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
    main()
