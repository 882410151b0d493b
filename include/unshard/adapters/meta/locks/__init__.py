"""Meta tables about DDL locks and the commands of operators."""
