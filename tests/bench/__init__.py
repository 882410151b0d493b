"""`make bench`: what unshard costs here, beside the peers it is measured against, in one run on one machine."""
