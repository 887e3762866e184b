"""What holds a message: many of them live at a time, each for itself."""

from __future__ import annotations

import msgspec


class Held(msgspec.Struct, gc=False, eq=False, weakref=False):
    """A message that somebody holds: equal to itself only, and nothing for the garbage collector.

    mypyc drops the keywords of a class, but not those of a base that it does not compile.
    """
