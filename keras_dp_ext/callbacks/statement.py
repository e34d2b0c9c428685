"""The privacy statement: what is guaranteed, for whom, and what is not."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from keras_dp_ext.accounting.best_attack import BestAttack, rounded_up
from keras_dp_ext.accounting.sampling import Sampling

_WIDTH = 78

_EXAMPLE = (
    "The unit of privacy is one example; somebody with several examples in the data is "
    "protected less; `keras_dp_ext.accounting.group_epsilon` says how much."
)
_PERSON = (
    "The unit of privacy is one person with all of their rows, however many these are, "
    "as told apart by the ids that were passed as `user_ids`."
)


def compose(
    epsilon: float,
    delta: float,
    releases: int,
    accountant: str,
    samplings: Sequence[Sampling],
    published: float | None = None,
    if_poisson: float | None = None,
    caveats: Sequence[str] = (),
    assumed: Sequence[str] = (),
    uncovered: Sequence[str] = (),
    best_attack: BestAttack | None = None,
) -> str:
    """A privacy statement in plain words.

    Args:
        epsilon: Proven epsilon.
        delta: Its delta.
        releases: Number of noised updates.
        accountant: "rdp" or "pld".
        samplings: Sampling schemes of all releases.
        published: Epsilon by the paper's own accounting, if it differs.
        if_poisson: Epsilon had each batch been a Poisson sample, if none was.
        caveats: Why published and proven figures differ.
        assumed: What the figures rest on that was not verified.
        uncovered: What else is known to have used the data.
        best_attack: What the guarantee means for an attacker.

    Returns:
        Several lines of text.
    """
    schemes = list(dict.fromkeys(samplings))
    adjacency = _of_the_whole(schemes)
    guarantee = (
        "The trained weights have NO differential privacy guarantee (epsilon is "
        f"infinite at delta {delta:g})"
        if math.isinf(epsilon)
        else f"The trained weights are ({rounded_up(epsilon, 4):.4g}, {delta:g})-"
        "differentially private. This figure is proven"
    )
    in_words = []
    if best_attack is not None and not math.isinf(epsilon):
        in_words.append(best_attack.describe())
    paragraphs = [
        f"{guarantee} for the {releases} noised updates that were applied, by the "
        f"{accountant.upper()} accountant, and holds for all intermediate weights "
        "together.",
        *in_words,
        f"Adjacency: {'; '.join(adjacency) or 'add or remove one example'}. "
        + (_PERSON if any(s.unit == "person" for s in schemes) else _EXAMPLE),
        "Sampling: "
        + ("; ".join(s.describe() for s in schemes) or "nothing yet")
        + ".",
    ]
    if if_poisson is not None:
        paragraphs.append(
            f"Had every batch been a Poisson sample, epsilon would be {if_poisson:.4g}; "
            "use `keras_dp_ext.data.poisson_batches` to earn it."
        )
    if published is not None:
        paragraphs.append(
            f"The paper's own accounting would print epsilon {published:.4g}; that is "
            "not what is proven."
        )
    paragraphs += [f"Caveat: {caveat}" for caveat in caveats]
    paragraphs += [f"Assumed, not verified: {what}." for what in assumed]
    paragraphs += [f"Not covered: {what}." for what in uncovered]
    paragraphs.append(
        "Not covered: metrics and losses of the training data that were shown or "
        "logged, hyper-parameters that were tuned on the same data, other models "
        "trained on it, and the choice of when to stop if it was made by looking at "
        "the data."
    )
    body = "\n".join(
        textwrap.fill(paragraph, _WIDTH, initial_indent="- ", subsequent_indent="  ")
        for paragraph in paragraphs
    )
    return f"Privacy statement\n{body}"


def _of_the_whole(schemes: Sequence[Sampling]) -> list[str]:
    """The neighbours for which all releases together are proven.

    What holds when anyone joins also holds when a contribution becomes nothing,
    not the other way round: one release that needs a public number of examples limits
    the whole training to it.
    """
    everywhere = dict.fromkeys(scheme.adjacency for scheme in schemes)
    limited = [one for one in everywhere if one.startswith("zero-out")]
    return limited or list(everywhere)
