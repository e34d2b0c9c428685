"""The page of the documentation, made from the measurements."""

from __future__ import annotations

from typing import Any

from benchmarks.third_party.case import Case
from benchmarks.third_party.catalogue import CASES
from benchmarks.third_party.measure import TOLERANCE, is_rounding

_HEADER = """\
# Models

Made by `python -m benchmarks.third_party`; do not edit. {count} models that nobody here wrote, in tiny configurations, each trained
with `DPSGD` through plain `compile` (batch of 16, of a size that TensorFlow does not know). KerasHub's models need `pip install keras-dp-ext[hub]`.
{trained} train; {refused} are refused, each because it mixes the examples of a batch or could not be verified, with the message below the tables.

- **way**: `rule`, read off the graph at once; or `fallback`, exact but one example at a time.
- **error**: of the first update against one `GradientTape` for each example, clipped at the median of their norms: the largest difference in any
  weight, over the largest entry of that weight's update. Without noise, dropout or other random numbers.
- **step**: processor time of a private step over a plain one, the least of interleaved rounds, so that other work on the machine cancels out. The
  models are tiny, so this is overhead more than arithmetic; for real sizes see [performance](performance.md).
- **first step**: processor seconds of tracing, verification and the step (plain Keras in brackets).
- **memory**: peak of a process of its own, in MB above what the imports take (plain Keras in brackets).
- **XLA**: whether `jit_compile=True` gives the same update{unmeasured}.

An update is right if the error is at most {tolerance:.0e}. Some models are so ill-conditioned that float32 does not decide: plain Keras' own gradients in
float32 are as far from those in float64. There the same step runs in float64 from the same weights, and must be right; the error in float64 is in brackets, and
the table at the end has all of it. Frozen BatchNormalization has statistics of a synthetic batch: with those of a new model only the last layers would have a gradient.
{older}"""

_COLUMNS = "| model | verdict | way | error | step | first step | memory | XLA |"


def page(results: dict[str, dict[str, Any]]) -> str:
    """Markdown with a table for each source."""
    shown = {name: CASES[name] for name in CASES if name in results}
    verdicts = [results[name]["verdict"] for name in shown]
    parts = [
        _HEADER.format(
            count=len(shown),
            trained=verdicts.count("trains"),
            refused=len(shown) - verdicts.count("trains"),
            tolerance=TOLERANCE,
            unmeasured=_unmeasured(results, shown),
            older=_older(results, shown),
        )
    ]
    for source in dict.fromkeys(case.source for case in shown.values()):
        rows = [
            _line(case, results[name])
            for name, case in shown.items()
            if case.source == source
        ]
        rule = "|---" * (_COLUMNS.count("|") - 1) + "|"
        parts.append("\n".join([f"\n## {_TITLES[source]}\n", _COLUMNS, rule, *rows]))
    parts.append(_rounding_table(results, shown))
    parts.append("\n\n## What is refused, and why\n")
    for name in shown:
        if results[name]["verdict"] != "trains":
            message = results[name]["message"].partition(": ")[2]
            parts.append(f"\n- **{name}**: {_first_sentences(message)}")
    return "".join(parts) + "\n"


_TITLES = {
    "keras.io pattern": "Patterns of keras.io's examples",
    "architecture": "Architectures of papers",
    "keras.applications": "keras.applications",
    "KerasHub": "KerasHub",
}


def is_right(row: dict[str, Any]) -> bool:
    """Whether a model trains as the loop over examples says."""
    return row["verdict"] == "trains" and _agrees(row["error"], row.get("double"))


def _agrees(error: float, double: dict[str, Any] | None) -> bool:
    if error <= TOLERANCE:
        return True
    return double is not None and is_rounding(error, double)


def _older(results: dict[str, Any], shown: dict[str, Case]) -> str:
    """Rows were not always dated."""
    count = sum("date" not in results[name] for name in shown)
    if not count:
        return ""
    return (
        f"\n{count} rows have no date in the file: they are from an earlier version of "
        "the code (only their XLA\ncolumn may be newer), those with frozen "
        "BatchNormalization with other statistics.\n"
    )


def _unmeasured(results: dict[str, Any], shown: dict[str, Case]) -> str:
    missing = any(
        results[name]["verdict"] == "trains" and "xla" not in results[name]
        for name in shown
    )
    return "; a dash: not measured" if missing else ""


def _line(case: Case, row: dict[str, Any]) -> str:
    name = f"{case.name} ({case.remark})" if case.remark else case.name
    if row["verdict"] != "trains":
        return f"| {name} | {row['verdict']} | - | - | - | - | - | - |"
    error = f"{row['error']:.0e}"
    if "double" in row and "error" in row["double"]:
        error += f" ({row['double']['error']:.0e})"
    cells = [
        name,
        "trains" if is_right(row) else "**wrong**",
        row["way"],
        error,
        f"{row['ratio']:.1f}",
        "{:.1f} ({:.1f})".format(*row["first_step"]),
        "{:.0f} ({:.0f})".format(*row["memory"]),
        _xla(row),
    ]
    return f"| {' | '.join(cells)} |"


def _xla(row: dict[str, Any]) -> str:
    if "xla" not in row:
        return "-"
    if row["xla"] is None:
        return "neither can plain Keras"
    right = row["xla"] and _agrees(row["xla_error"], row.get("xla_double"))
    return "yes" if right else "**no**"


def _rounding_table(results: dict[str, Any], shown: dict[str, Case]) -> str:
    """All that float32 cannot decide."""
    rows = []
    for name in shown:
        for title, error, double in (
            (name, "error", "double"),
            (f"{name}, XLA", "xla_error", "xla_double"),
        ):
            found = results[name].get(double)
            if found is not None and "error" in found:
                figures = (results[name][error], found["rounding"], found["error"])
                cells = " | ".join(f"{figure:.0e}" for figure in figures)
                rows.append(f"| {title} | {cells} |")
    if not rows:
        return ""
    return "\n".join(
        [
            "\n\n## Where float64 decides\n",
            "| model | error in float32 | plain Keras, float32 from float64 | error in float64 |",
            "|---|---|---|---|",
            *rows,
        ]
    )


def _first_sentences(message: str, most: int = 900) -> str:
    """As many whole sentences as fit, on one line."""
    text = ""
    for sentence in " ".join(message.partition(" (variables: ")[0].split()).split(". "):
        if text and len(text) + len(sentence) > most:
            break
        text += sentence.rstrip(".") + ". "
    return text.strip().replace("|", "\\|")
