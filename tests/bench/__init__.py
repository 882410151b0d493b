"""`make bench`: the speed of unshard on this machine, compared with other tools in the same run."""
