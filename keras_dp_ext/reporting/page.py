"""From a record to one HTML page that loads nothing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from html import escape

from keras_dp_ext.accounting.best_attack import FALSE_POSITIVE_RATES, rounded_up
from keras_dp_ext.accounting.ledger import Ledger
from keras_dp_ext.reporting.chart import line_chart
from keras_dp_ext.reporting.record import Record

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;color:#1b1f24;max-width:820px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.7rem;margin-bottom:.2rem}h2{font-size:1.15rem;margin-top:2rem;border-bottom:1px solid #d0d7de}
.big{font-size:2.6rem;font-weight:650}.muted{color:#59636e}.warn{background:#fff1cf;padding:.6rem 1rem;border-radius:6px}
table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #e4e8ec;vertical-align:top}
.charts{display:flex;flex-wrap:wrap;gap:1rem}.charts svg{flex:1 1 340px;max-width:400px}
svg text{font-size:11px;fill:#59636e}svg .title{font-size:13px;fill:#1b1f24;font-weight:600}
svg .grid{stroke:#e4e8ec}svg .curve{fill:none;stroke:#0b6bcb;stroke-width:2}svg .target{fill:none;stroke:#c2410c;stroke-dasharray:5 4}
svg circle{fill:#0b6bcb}pre{background:#f6f8fa;padding:1rem;overflow:auto;font-size:12px}
"""

_NAMES = {
    "val_accuracy": "accuracy, validation data",
    "val_loss": "loss, validation data",
}


def compose(record: Record) -> str:
    """The page."""
    sections = [
        _head(record),
        _section("What you may claim", _statement(record.statement)),
        _section("In plain words", _plain_words(record)),
        _section("Epoch by epoch", _charts(record)),
        _section("Noise and lots", _releases(record)),
        _section("Settings", _table(record.settings.items())),
        _section("Versions", _table(record.versions.items())),
        _section("For a reviewer", _ledger(record)),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Privacy report: {escape(record.title)}</title>"
        f"<style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(filter(None, sections))
        + "\n</body></html>\n"
    )


def _head(record: Record) -> str:
    lines = [
        f"<h1>Privacy report: {escape(record.title)}</h1>",
        f'<p class="big">ε = {_figure(rounded_up(record.epsilon, 4))}</p>',
        f'<p class="muted">proven at δ = {record.delta:g} for {record.releases} noised '
        f"updates, {escape(record.accountant.upper())} accountant"
        + (
            ""
            if record.target_epsilon is None
            else f"; budget {_figure(record.target_epsilon)}"
        )
        + "</p>",
    ]
    if math.isinf(record.epsilon):
        lines.append('<p class="warn">There is no differential privacy guarantee.</p>')
    if record.published_epsilon is not None:
        lines.append(
            '<p class="warn">The accounting of the paper prints '
            f"{_figure(record.published_epsilon)}; what is proven is stated here.</p>"
        )
    return "\n".join(lines)


def _statement(text: str) -> str:
    """The bullets of the statement, as a list."""
    bullets = [
        " ".join(part.split())
        for part in re.split(r"^\s*- ", text, flags=re.MULTILINE)[1:]
    ]
    return "<ul>" + "".join(f"<li>{escape(b)}</li>" for b in bullets) + "</ul>"


def _plain_words(record: Record) -> str:
    allowed = "".join(
        f"<tr><td>{_percent(rate)}</td><td>{_percent(rounded_up(record.most_recognised(rate)))}</td>"
        + "".join(
            f"<td>{_percent(rates[rate]) if rate in rates else ''}</td>"
            for rates in record.attack.values()
        )
        + "</tr>"
        for rate in FALSE_POSITIVE_RATES
    )
    measured = "".join(f"<th>attack “{escape(n)}” did</th>" for n in record.attack)
    return (
        "<p>Somebody looks at the trained model and tries to tell who was in the "
        "training data. Whatever they know and do, if they wrongly name this share of "
        "the people who were not, they rightly name at most that share of those who "
        "were:</p><table><tr><th>wrongly named</th><th>rightly named, at most</th>"
        f"{measured}</tr>{allowed}</table>{_mu(record)}" + _best_point(record)
    )


def _mu(record: Record) -> str:
    bounds = record.best_attack
    if math.isinf(bounds.gdp_mu):
        return ""
    source = (
        "from the privacy loss distribution"
        if bounds.computed_from == "pld"
        else "from ε and δ alone; the truth may be better"
    )
    return (
        f'<p class="muted">Up to δ, {_figure(rounded_up(bounds.gdp_mu))}-Gaussian '
        f"differential privacy (μ-GDP). Computed {source}.</p>"
    )


def _best_point(record: Record) -> str:
    points = [
        (found / rate, name, rate, found)
        for name, rates in record.attack.items()
        for rate, found in rates.items()
        if rate > 0
    ]
    if not points:
        return '<p class="muted">No attack was made for this report.</p>'
    gain, name, rate, found = max(points)
    return (
        f"<p>The best attack that was made (“{escape(name)}”) recognised "
        f"{_percent(found)} of the members while it wrongly named {_percent(rate)} of "
        f"the others: {gain:.1f} times as many as by guessing.</p>"
    )


def _charts(record: Record) -> str:
    rows = [row for row in record.history if "epsilon" in row]
    if not rows:
        return '<p class="muted">No history of the epochs was kept.</p>'
    epochs = [row["epoch"] for row in rows]
    charts = [
        line_chart(
            epochs,
            [row["epsilon"] for row in rows],
            "proven ε",
            "epoch",
            from_zero=True,
            line=record.target_epsilon,
        )
    ]
    names = [n for n in rows[-1] if n.startswith("val_")]
    for name in sorted(names, key=lambda n: (n != "val_accuracy", n))[:3]:
        values = [row.get(name, math.nan) for row in rows]
        charts.append(line_chart(epochs, values, _NAMES.get(name, name), "epoch"))
    return f'<div class="charts">{"".join(charts)}</div>'


def _releases(record: Record) -> str:
    entries = Ledger.from_json(json.dumps(record.ledger)).entries(record.releases)
    rows = "".join(
        f"<tr><td>{escape(str(getattr(claim, 'proven', claim)))}</td>"
        f"<td>{escape(sampling.describe())}</td><td>{count}</td></tr>"
        for claim, sampling, count in entries
    )
    return (
        "<table><tr><th>what is released</th><th>how examples are drawn</th>"
        f"<th>times</th></tr>{rows}</table>"
    )


def _ledger(record: Record) -> str:
    text = json.dumps(record.ledger, indent=2)
    return (
        "<p>The ledger of all releases. <code>keras_dp_ext.accounting.Ledger.from_json"
        "</code> reads it, and computes the same epsilon from it.</p><details><summary>"
        f"Ledger as JSON</summary><pre>{escape(text)}</pre></details>"
        # "</" would end the element.
        '<script type="application/json" id="ledger">'
        + json.dumps(record.ledger).replace("</", "<\\/")
        + "</script>"
    )


def _section(title: str, content: str) -> str:
    return f"<h2>{title}</h2>\n{content}" if content else ""


def _table(items: Iterable[tuple[str, object]]) -> str:
    rows = "".join(
        f"<tr><td>{escape(str(name).replace('_', ' '))}</td>"
        f"<td>{escape(str(value))}</td></tr>"
        for name, value in items
    )
    return f"<table>{rows}</table>" if rows else ""


def _figure(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.4g}"


def _percent(share: float) -> str:
    return f"{100 * share:.3g}\N{NO-BREAK SPACE}%"
