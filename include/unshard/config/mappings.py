"""Build the rule of a column mapping of a task file."""

from unshard.config.declare import FilePlace, Values
from unshard.core.rules.columnmapping import INSTANCE_BITS, Affix, Expression, MappingRule, Partition
from unshard.core.rules.pattern import compile_pattern
from unshard.errors.config import BadValue

INSTANCES = 1 << INSTANCE_BITS
PARTITION = (3, 4)


def mapping_rule(name: str, values: Values, case_sensitive: bool) -> MappingRule:
    """Return the compiled rule; arguments that do not fit its expression are an error with its place."""
    whose = str(values.place)
    table = values["table-pattern"]
    return MappingRule(
        name,
        compile_pattern(values["schema-pattern"], case_sensitive, whose),
        compile_pattern(table, case_sensitive, whose) if table else None,
        values["source-column"] or values["target-column"],
        values["target-column"],
        _how(values["expression"], values["arguments"], values.place_of("arguments")),
        values["referencing-columns"],
        values["shared-bits"],
    )


def _how(expression: Expression, arguments: tuple[str, ...], place: FilePlace) -> Partition | Affix:
    if expression is Expression.PARTITION_ID:
        return _partition(arguments, place)
    if len(arguments) != 1:
        raise BadValue(str(place), _shown(arguments), f"one text for '{expression}'")
    return Affix(before=arguments[0]) if expression is Expression.ADD_PREFIX else Affix(after=arguments[0])


def _partition(arguments: tuple[str, ...], place: FilePlace) -> Partition:
    if len(arguments) not in PARTITION:
        wanted = "three texts or four for 'partition id': instance, schema prefix, table prefix, separator"
        raise BadValue(str(place), _shown(arguments), wanted)
    instance, schema, table, separator = (*arguments, "")[:4]
    if instance and not (instance.isascii() and instance.isdigit() and int(instance) < INSTANCES):
        raise BadValue(str(place), instance, f"an instance from 0 to {INSTANCES - 1}, or empty")
    return Partition(int(instance) if instance else None, schema or None, table or None, separator)


def _shown(arguments: tuple[str, ...]) -> str:
    return f"[{', '.join(arguments)}]"
