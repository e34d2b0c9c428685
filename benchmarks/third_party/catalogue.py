"""All third-party models, by name."""

from benchmarks.third_party import (
    applications,
    architectures,
    hub_images,
    hub_text,
    keras_io,
    sequence_patterns,
    unseen_patterns,
    vision_patterns,
)
from benchmarks.third_party.case import Case

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        *keras_io.CASES,
        *vision_patterns.CASES,
        *sequence_patterns.CASES,
        *unseen_patterns.CASES,
        *architectures.CASES,
        *applications.CASES,
        *hub_text.CASES,
        *hub_images.CASES,
    )
}
