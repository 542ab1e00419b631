"""Data that are read in pieces, because they may not fit in memory."""

from .blocks import Blocks
from .stream import Stream, find_blocks, open_stream, surveyed

__all__ = ["Blocks", "Stream", "find_blocks", "open_stream", "surveyed"]
