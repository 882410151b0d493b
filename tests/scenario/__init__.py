"""Whole tasks in memory."""

import os

IS_FAST = "UNSHARD_FAST" in os.environ
"""Set by `make fast`: a third of the games, an eighth of the deaths; `make test` has all of them."""
