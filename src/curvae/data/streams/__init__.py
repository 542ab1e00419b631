"""Data that are read in pieces, because they may not fit in memory."""

from .batches import Batches, BatchSource, open_batches
from .blocks import Blocks
from .stream import Stream, find_blocks, open_stream
from .survey import surveyed

__all__ = ["BatchSource", "Batches", "Blocks", "Stream", "find_blocks", "open_batches", "open_stream", "surveyed"]
