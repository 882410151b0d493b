"""Everything that an operator can do with locks, differences and statements.

    command            a command to a lock as a value: in a shell, in a form of the page, in the record
    issuing            its dry run and its effect
    statementcommands  the same for commands about statements of a source's binlog
    advice             the commands that help with a lock, as data
    documents          locks, differences and suspended targets as JSON and as text

The command line, the page and the DAGs render these values. docs/life-of-a-command.md follows one command.
"""
