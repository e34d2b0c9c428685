"""The privacy report: true figures, nothing to load, and it looks like something."""

import html.parser
import json
import math
import re
import shutil
import subprocess

import keras
import numpy as np
import pytest

import keras_dp_ext as dp
from keras_dp_ext.accounting.best_attack import rounded_up
from keras_dp_ext.callbacks import statement
from keras_dp_ext.cli.main import main
from keras_dp_ext.reporting import page
from keras_dp_ext.reporting.record import Record

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def trained():
    rng = np.random.default_rng(0)
    x = rng.standard_normal([200, 3]).astype("float32")
    y = (x[:, 0] > 0).astype("int32")
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(2)], name="net")
    model.compile(
        dp.DPSGD.for_budget(
            epsilon=2.0, delta=1e-3, num_examples=150, batch_size=15, epochs=4
        ),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        weighted_metrics=["accuracy"],
    )
    model.fit(
        dp.poisson_batches(x[:150], y[:150], batch_size=15),
        epochs=4,
        verbose=0,
        validation_data=(x[150:], y[150:]),
        callbacks=[dp.PrivacyAccountant(delta=1e-3, target_epsilon=2.0)],
    )
    attack = dp.audit.membership_inference(
        model, (x[:150], y[:150]), (x[150:], y[150:])
    )
    return model, attack


@pytest.fixture(scope="module")
def text(trained, tmp_path_factory):
    model, attack = trained
    path = tmp_path_factory.mktemp("report") / "report.html"
    assert dp.report(model, path, attack=attack) == path
    return path.read_text(encoding="utf-8")


class Checker(html.parser.HTMLParser):
    """Elements that are closed in order, and what they refer to."""

    def __init__(self):
        super().__init__()
        self.open, self.references, self.scripts = [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "circle", "line", "polyline"):
            self.open.append(tag)
        self.references += [v for k, v in attrs if k in ("src", "href")]
        if tag == "script":
            self.scripts.append(dict(attrs)["type"])

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_it_is_one_page_that_loads_nothing(text):
    checker = Checker()
    checker.feed(text)
    assert not checker.open and not checker.references
    assert checker.scripts == ["application/json"]
    assert "url(" not in text and "@import" not in text


def test_figures_are_those_of_the_ledger(trained, text):
    model, _ = trained
    releases = int(model.optimizer.releases)
    assert f"for {releases} noised" in text
    ledger = json.loads(re.search(r'id="ledger">(.*?)</script>', text)[1])
    again = dp.accounting.Ledger.from_json(json.dumps(ledger))
    epsilon = again.epsilon(releases, 1e-3)
    shown = float(re.search(r"ε = ([\d.]+)<", text)[1])
    assert epsilon <= shown <= epsilon * 1.001
    assert "budget 2" in text and "differentially private" in text


@pytest.mark.parametrize("epsilon", [2.99986, 1.23411, 0.100049, 3.0, 1234.06])
def test_no_printed_epsilon_is_below_the_proven_one(epsilon):
    """Four digits to the nearest would claim (1.234, delta) where 1.23411 is proven."""
    said = statement.compose(epsilon, 1e-5, 40, "rdp", [])
    ledger = json.loads(dp.accounting.Ledger().to_json())
    record = Record("t", epsilon, 1e-5, 0, "rdp", said, ledger)
    claims = re.findall(r"are \(([\d.]+),|ε = ([\d.]+)<", said + page.compose(record))
    claims = [float(a or b) for a, b in claims]
    assert len(claims) >= 2
    assert all(epsilon <= claim <= epsilon * 1.001 for claim in claims)


def test_metrics_of_the_training_data_are_not_handed_on(trained, text):
    model, _ = trained
    assert "accuracy" in model.history.history
    assert "accuracy, validation data" in text
    for value in model.history.history["loss"]:
        # With its zeros: figures of a drawing have two digits, and may be "1.16".
        rounded = re.escape(f"{value:.3f}")
        assert not re.search(rf"(?<![\d.]){rounded}(?![\d])", text)
        assert f"{value:.7g}" not in text


@pytest.mark.parametrize(("rate", "epsilon"), [(0.001, 1.0), (0.01, 3.0), (0.3, 5.0)])
def test_what_an_attack_can_achieve(rate, epsilon):
    most = Record("t", epsilon, 1e-5, 1, "rdp", "", {}).most_recognised(rate)
    # Randomised response attains (epsilon, 0)-DP: the answer is true with
    # probability t. Believing it, or part of it, is the best test of all.
    t = math.exp(epsilon) / (1 + math.exp(epsilon))
    wrong = 1 - t
    best = rate / wrong * t if rate <= wrong else t + (rate - wrong) / t * wrong
    assert most == pytest.approx(best, rel=1e-2) and most >= best


def test_the_attack_is_told_in_plain_words(text):
    assert "attack “loss” did" in text and "times as many as by guessing" in text


def test_the_best_attack_comes_from_the_privacy_loss_distribution(trained, text):
    model, _ = trained
    accountant = dp.callbacks.PrivacyAccountant(delta=1e-3)
    accountant.set_model(model)
    bounds = accountant.best_attack
    assert bounds.computed_from == "pld"
    assert "from the privacy loss distribution" in text and "μ-GDP" in text
    record = Record("t", accountant.epsilon, 1e-3, 1, "rdp", "", {})
    assert bounds.true_positive_rates[0.01] < record.most_recognised(0.01)


def test_names_cannot_inject_markup(trained):
    model, _ = trained
    ledger = json.loads(model.optimizer.ledger.to_json())
    record = Record("<script>x", 1.0, 1e-5, 40, "rdp", "- <b>bold</b>", ledger)
    shown = page.compose(record)
    assert "<script>x" not in shown and "<b>" not in shown


def test_a_reloaded_model_needs_delta(trained, tmp_path):
    model, _ = trained
    model.save(tmp_path / "m.keras")
    again = keras.models.load_model(tmp_path / "m.keras")
    with pytest.raises(ValueError, match="`delta` is needed"):
        dp.report(again, tmp_path / "r.html")
    dp.report(again, tmp_path / "r.html", delta=1e-3)
    assert "No history" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_the_command(tmp_path, capsys):
    run = tmp_path / "run"
    arguments = f"train --model linear --epochs 2 --quiet --output-dir {run}"
    assert main(arguments.split()) == 0
    assert main(["report", str(run)]) == 0
    written = (run / "report.html").read_text(encoding="utf-8")
    epsilon = json.loads((run / "privacy.json").read_text())["epsilon"]
    assert f"ε = {rounded_up(epsilon, 4):.4g}<" in written
    assert written.count("<svg") >= 2
    capsys.readouterr()
    assert main(["report", str(tmp_path / "absent")]) == 2
    assert "must hold a training" in capsys.readouterr().err


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_a_browser_shows_it(text, tmp_path):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    (tmp_path / "report.html").write_text(text, encoding="utf-8")
    picture = tmp_path / "report.png"
    subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=900,1800",
            f"--user-data-dir={tmp_path / 'profile'}",
            f"--screenshot={picture}",
            (tmp_path / "report.html").as_uri(),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    pixels = pyplot.imread(picture)[..., :3]
    dark = np.mean(pixels.min(axis=-1) < 0.5)
    blue = np.mean((pixels[..., 2] > 0.7) & (pixels[..., 0] < 0.2))
    assert 0.005 < dark < 0.5, "There is no text."
    assert blue > 1e-4, "There are no curves."
