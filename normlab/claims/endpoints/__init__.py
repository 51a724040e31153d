"""The kinds of endpoint that decide a part of a claim, each in a file of its own."""

from collections.abc import Mapping

from normlab.claims.endpoints.awaits import Awaits
from normlab.claims.endpoints.base import Endpoint
from normlab.claims.endpoints.computed import Computed
from normlab.claims.endpoints.contrast import Contrast
from normlab.claims.endpoints.document import Document
from normlab.claims.endpoints.level import Level
from normlab.claims.endpoints.published import Published
from normlab.claims.endpoints.timing import Timing
from normlab.claims.endpoints.trains import Trains

KINDS: Mapping[str, type[Endpoint]] = {
    kind.kind: kind
    for kind in (Contrast, Trains, Level, Document, Computed, Timing, Published, Awaits)
}

__all__ = ["KINDS", "Endpoint"]
