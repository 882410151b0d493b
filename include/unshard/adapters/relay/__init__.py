"""The relay's files: segments and their indexes, in a folder or in an object store."""

from unshard.adapters.relay.bucket import BucketPlace
from unshard.adapters.relay.folder import TEMPORARY, FolderPlace
from unshard.adapters.relay.store import RangeBytes, RelayStore, SegmentWriter

__all__ = ["TEMPORARY", "BucketPlace", "FolderPlace", "RangeBytes", "RelayStore", "SegmentWriter"]
