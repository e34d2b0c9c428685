"""What a mechanism says about one release, before sampling is considered."""

from __future__ import annotations

import dataclasses

from keras_dp_ext.accounting.events import Event


@dataclasses.dataclass(frozen=True)
class Claim:
    """The proven cost of one release, and the published one beside it.

    Attributes:
        proven: The event that bounds what was executed.
        published: The event that the paper's accounting would use, or `None`
            where the paper claims exactly what is proven.
        caveat: Why the two differ, in plain words; shown as a warning.
    """

    proven: Event
    published: Event | None = None
    caveat: str | None = None
