"""Dump the shards of one source: `spark-submit dump_table.py --task shop.yaml --source s1`."""

import sys

from unshard.cli.submitted import submitted
from unshard.units.full.dump import dump

if __name__ == "__main__":
    sys.exit(submitted(__doc__, dump, "source chunks rows bytes"))
