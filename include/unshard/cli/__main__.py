"""`python -m unshard.cli` is `unshard`."""

import sys

from unshard.cli.app import main

sys.exit(main())
