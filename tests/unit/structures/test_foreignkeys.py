"""Foreign keys as values: the groups of tables that they connect, and their names in the target."""

from dataclasses import replace

from unshard.core.model import TableId
from unshard.core.structures.foreignkeys import ForeignKey, connected, groups_of, routed, without_like


def table(name: str) -> TableId:
    return TableId("s", name)


def key(child: str, parent: str, **actions: str) -> ForeignKey:
    return ForeignKey(table(child), ("p",), table(parent), ("id",), f"{child}_{parent}", **actions)


def test_tables_that_foreign_keys_connect_are_one_group() -> None:
    keys = (key("b", "a"), key("c", "b"), key("e", "d"))
    assert groups_of(map(table, "abcdef"), keys) == (tuple(map(table, "abc")), tuple(map(table, "de")))


def test_a_group_has_only_the_wanted_tables_but_is_connected_by_all() -> None:
    keys = (key("b", "a"), key("c", "b"))
    assert groups_of(map(table, "ac"), keys) == ((table("a"), table("c")),)


def test_a_table_that_references_itself_is_a_group() -> None:
    assert groups_of([table("a"), table("b")], [key("a", "a")]) == ((table("a"),),)


def test_a_cycle_is_one_group() -> None:
    assert groups_of(map(table, "ab"), (key("a", "b"), key("b", "a"))) == ((table("a"), table("b")),)


def test_connected_adds_the_other_tables_of_a_group() -> None:
    keys = (key("b", "a"), key("c", "b"), key("e", "d"))
    assert connected({table("c"), table("f")}, keys) == set(map(table, "abcf"))


def test_foreign_keys_get_the_names_of_the_targets() -> None:
    targets = {table("a_1"): table("a"), table("b_1"): table("b"), table("a_2"): table("a"), table("b_2"): table("b")}
    keys = (key("b_1", "a_1"), key("b_2", "a_2"), key("b_1", "elsewhere"), key("elsewhere", "a_1"))
    made, left = routed(keys, targets.get)
    assert {(each.child, each.parent) for each in made} == {(table("b"), table("a"))}
    assert left == (key("b_1", "elsewhere"),)


def test_equal_rules_are_alike_whatever_their_name_and_the_word_for_no_action() -> None:
    first = key("b", "a", on_delete="CASCADE", on_update="NO ACTION")
    second = ForeignKey(table("b"), ("P",), table("a"), ("ID",), "other", "CASCADE", "RESTRICT")
    assert without_like([first], [second]) == ()
    assert without_like([first], [key("b", "a")]) == (first,)


def test_cascades_are_the_actions_that_change_children() -> None:
    assert key("b", "a", on_delete="SET NULL", on_update="CASCADE").cascades == (
        "ON DELETE SET NULL",
        "ON UPDATE CASCADE",
    )
    assert key("b", "a", on_delete="NO ACTION").cascades == ()


def test_a_name_that_the_server_has_made_follows_the_table() -> None:
    keys = [replace(key(f"a_{n}", "b"), name=f"a_{n}_ibfk_1") for n in (1, 2)]
    made, _ = routed(keys, {table("a_1"): table("a"), table("a_2"): table("a"), table("b"): table("b")}.get)
    assert [each.name for each in made] == ["a_ibfk_1"]


def test_two_foreign_keys_of_one_number_keep_different_names() -> None:
    keys = [replace(key(f"a_{n}", "b"), name=f"a_{n}_ibfk_1", columns=(f"p{n}",)) for n in (1, 2)]
    made, _ = routed(keys, {table("a_1"): table("a"), table("a_2"): table("a"), table("b"): table("b")}.get)
    assert [each.name for each in made] == ["a_ibfk_1", "a_2_ibfk_1"]


def test_tables_that_have_a_part_of_a_window_stay_one_group() -> None:
    together = [(table("a"), table("c"))]
    assert groups_of(map(table, "abc"), (), together) == ((table("a"), table("c")),)
    assert groups_of(map(table, "abc"), (key("b", "c"),), together) == (tuple(map(table, "abc")),)
