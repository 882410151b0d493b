"""Load the dumped rows of one source: `spark-submit load_table.py --task shop.yaml --source s1`."""

import sys

from unshard.cli.submitted import submitted
from unshard.units.full.load import load

if __name__ == "__main__":
    sys.exit(submitted(__doc__, load, "source chunks rows"))
