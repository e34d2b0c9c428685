"""`keras-dp`: right figures, one-line errors, no TensorFlow."""

import json
import math
import subprocess
import sys

import dp_accounting
import pytest

from keras_dp_ext import accounting, noise
from keras_dp_ext.accounting import accountants, composition
from keras_dp_ext.bounding.codebook import Codebook
from keras_dp_ext.cli.main import main, subcommands

MNIST = [
    "--num-examples",
    "60000",
    "--batch-size",
    "256",
    "--epochs",
    "60",
    "--delta",
    "1e-5",
]
STEPS = 60 * 234
SAMPLED = accounting.Poisson(256 / 60_000)


def run(capsys, *arguments):
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def run_json(capsys, *arguments):
    code, out, err = run(capsys, *arguments, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_epsilon_of_dpsgd_is_the_accountants(capsys):
    result = run_json(capsys, "epsilon", "--noise-multiplier", 1.1, *MNIST)
    release = accounting.GaussianRelease(1.1)
    expected = accounting.epsilon([(release, SAMPLED, STEPS)], 1e-5)
    assert result["epsilon"] == pytest.approx(expected, rel=1e-12)
    # The moments accountant: the same events by the conversion of its day.
    moments = composition.moments_accountant(1.1, 256 / 60_000, STEPS, 1e-5)
    assert result["published_epsilon"] == pytest.approx(moments, rel=1e-12)
    assert (result["delta"], result["steps"]) == (1e-5, STEPS)
    assert (result["accountant"], result["sampling"]) == ("rdp", "poisson")


def test_epsilon_tells_how_well_the_best_attack_does(capsys):
    dpsgd = ["epsilon", "--noise-multiplier", 1.1, *MNIST]
    attack = run_json(capsys, *dpsgd)["best_attack"]
    entries = [(accounting.GaussianRelease(1.1), SAMPLED, STEPS)]
    assert attack == accounting.best_attack(entries, 1e-5).serialize()
    assert attack["computed_from"] == "pld"
    _, out, _ = run(capsys, *dpsgd)
    assert "true positives at 1% false positives, at most" in out
    assert "true positives at 0.1% false positives" in out and "mu-GDP" in out


def test_pld_and_the_classic_conversion(capsys):
    dpsgd = ["epsilon", "--noise-multiplier", 1.1, *MNIST]
    tight = run_json(capsys, *dpsgd)["epsilon"]
    assert run_json(capsys, *dpsgd, "--accountant", "pld")["epsilon"] < tight
    assert run_json(capsys, *dpsgd, "--conversion", "classic")["epsilon"] > tight


def test_figures_that_are_the_same_are_computed_once(capsys, monkeypatch):
    calls, original = [], accountants.epsilon
    monkeypatch.setattr(
        accountants, "epsilon", lambda *a, **k: calls.append(a) or original(*a, **k)
    )
    dpsgd = ["epsilon", "--noise-multiplier", 1.1, *MNIST]
    run_json(capsys, *dpsgd, "--conversion", "classic")
    assert len(calls) == 1
    run_json(capsys, *dpsgd)  # tight, and by the paper's conversion
    assert len(calls) == 3


def test_epsilon_of_encoding_is_the_mechanisms_own(capsys):
    from keras_dp_ext.mechanisms.encoding import Encoded

    mechanism = Encoded(noise=noise.StudentT(df=9, scale=1.0))
    claim = mechanism.claim(26_010)
    expected = accounting.epsilon([(claim.proven, SAMPLED, STEPS)], 1e-5)
    result = run_json(
        capsys,
        *[
            "epsilon",
            "--mechanism",
            "encoding",
            "--noise",
            "student-t",
            "--df",
            "9",
            "--scale",
            "1.0",
        ],
        *["--parameters", "26010"],
        *MNIST,
    )
    assert result["epsilon"] == expected


@pytest.mark.parametrize(
    "name", ["gaussian", "laplace", "cauchy", "variance-gamma", "sech"]
)
def test_every_noise_has_a_scale(capsys, name):
    result = run_json(
        capsys,
        *f"epsilon --mechanism encoding --noise {name} --scale 1.3".split(),
        *["--parameters", "300", "--codebook-size", "3"],
        *MNIST,
    )
    drawn = noise.get({"class_name": name, "config": {"scale": 1.3}})
    release = accounting.CodebookRelease(drawn, Codebook(size=3), 300)
    expected = accounting.epsilon([(release, SAMPLED, STEPS)], 1e-5)
    assert result["epsilon"] == pytest.approx(expected, rel=1e-9)


def test_tanh_as_published_is_told_apart_from_what_is_proven(capsys):
    arguments = ["epsilon", "--mechanism", "tanh", "--noise-multiplier", "1.1"]
    proven = run_json(capsys, *arguments, *MNIST)
    published = run_json(
        capsys,
        *arguments,
        *["--guarantee", "published", "--parameters", "26010"],
        *MNIST,
    )
    assert published["epsilon"] > 1e8
    assert published["published_epsilon"] == proven["published_epsilon"]
    # By the proposition that the paper cites (Mironov, 2017), with an RDP accountant
    # that is not ours.
    orders = dp_accounting.rdp.rdp_privacy_accountant.DEFAULT_RDP_ORDERS
    accountant = dp_accounting.rdp.RdpAccountant(orders)
    step = dp_accounting.PoissonSampledDpEvent(
        256 / 60_000, dp_accounting.GaussianDpEvent(1.1)
    )
    accountant.compose(step, STEPS)
    classic = min(
        rdp + math.log(1e5) / (order - 1)
        for order, rdp in zip(accountant._orders, accountant._rdp, strict=True)
    )
    assert published["published_epsilon"] == pytest.approx(classic, rel=1e-3)
    assert published["published_epsilon"] == pytest.approx(3.006, abs=1e-3)
    pld = run_json(
        capsys,
        *arguments,
        *["--guarantee", "published", "--parameters", "26010", "--accountant", "pld"],
        *MNIST,
    )
    assert pld["published_epsilon"] == published["published_epsilon"]
    assert "no meaningful guarantee" in published["caveat"]


def test_directional_as_published(capsys):
    budget = [
        "epsilon",
        "--mechanism",
        "directional",
        "--guarantee",
        "published",
        "--budget-epsilon",
        "1",
        "--num-examples",
        "55000",
        "--batch-size",
        "512",
        "--epochs",
        "60",
        "--delta",
        "1e-5",
        "--parameters",
        "61706",
    ]
    result = run_json(capsys, *budget)
    assert result["published_epsilon"] == pytest.approx(1.0, rel=1e-3)
    # Nothing can be promised in advance: a weight may be 0.
    assert float(result["epsilon"]) == math.inf
    assert result["tau"] == pytest.approx(0.0135, abs=1e-4)
    assert result["isotropic_multiplier"] == pytest.approx(8.61, abs=0.03)
    assert result["epsilon_if_isotropic"] == pytest.approx(0.32, abs=0.01)
    assert result["epsilon_if_w_is_noise"] > 300


def test_shuffled_data_gets_both_figures(capsys):
    result = run_json(
        capsys,
        *["epsilon", "--noise-multiplier", "4", "--sampling", "shuffled"],
        *MNIST,
    )
    release = accounting.GaussianRelease(4.0)
    unamplified = accounting.epsilon([(release, accounting.FullBatch(), 60)], 1e-5)
    poisson = accounting.epsilon([(release, SAMPLED, 60 * 235)], 1e-5)
    assert result["epsilon"] == pytest.approx(unamplified)
    assert result["epsilon_if_poisson"] == pytest.approx(poisson)
    assert "zero-out" in result["adjacency"]


def test_microbatches_of_several_examples_double_the_sensitivity(capsys):
    groups = run_json(
        capsys,
        *["epsilon", "--noise-multiplier", "2.2", "--num-microbatches", "64"],
        *MNIST,
    )
    singles = run_json(capsys, "epsilon", "--noise-multiplier", 1.1, *MNIST)
    assert groups["epsilon"] == pytest.approx(singles["epsilon"])


def test_delta_defaults_to_a_power_of_ten_below_one_over_n(capsys):
    result = run_json(
        capsys,
        *[
            "epsilon",
            "--noise-multiplier",
            "1",
            "--num-examples",
            "60000",
            "--batch-size",
            "600",
        ],
        *["--steps", "10"],
    )
    assert (result["delta"], result["steps"]) == (1e-5, 10)


def test_people_read_a_report(capsys):
    code, out, _ = run(capsys, "epsilon", "--noise-multiplier", 1.1, *MNIST)
    assert code == 0
    assert out.startswith("epsilon            2.595   at delta 1e-05")
    assert "Poisson sampling" in out and "add or remove one example" in out


@pytest.mark.parametrize("target", [1, 2, 3, 5, 7, 9])
def test_noise_is_printed_rounded_up(capsys, target):
    """Copied from the screen, it must not be less than the budget needs."""
    arguments = "calibrate", "--target-epsilon", target, *MNIST
    exact = run_json(capsys, *arguments)["noise_multiplier"]
    _, out, _ = run(capsys, *arguments)
    (printed,) = (s.split()[-1] for s in out.splitlines() if s.startswith("noise m"))
    assert exact <= float(printed) <= exact * (1 + 1e-5)


@pytest.mark.parametrize("value", [0.123411, 1.23411, 123411.0])
def test_epsilon_is_printed_rounded_up(value):
    from keras_dp_ext.cli._figures import figure

    assert value <= float(figure(value)) <= 1.01 * value


def test_no_noise_is_said_to_be_no_guarantee(capsys):
    assert (
        run_json(capsys, "epsilon", "--noise-multiplier", 0, *MNIST)["epsilon"] == "inf"
    )
    _, out, _ = run(capsys, "epsilon", "--noise-multiplier", 0, *MNIST)
    assert "no guarantee" in out


@pytest.mark.parametrize("mechanism", ["dpsgd", "tanh", "directional"])
def test_calibrated_noise_meets_the_target(capsys, mechanism):
    result = run_json(
        capsys, *f"calibrate --mechanism {mechanism} --target-epsilon 3".split(), *MNIST
    )
    sigma = result["noise_multiplier"]
    spent = run_json(
        capsys,
        *f"epsilon --mechanism {mechanism} --noise-multiplier {sigma!r}".split(),
        *MNIST,
    )
    assert spent["epsilon"] == pytest.approx(result["epsilon"])
    assert 2.98 < result["epsilon"] <= 3.0


def test_calibrated_scale_of_other_noise_meets_the_target(capsys):
    result = run_json(
        capsys,
        *[
            "calibrate",
            "--mechanism",
            "encoding",
            "--noise",
            "laplace",
            "--parameters",
            "500",
        ],
        *["--codebook-size", "5", "--target-epsilon", "3"],
        *MNIST,
    )
    assert 2.98 < result["epsilon"] <= 3.0 and result["scale"] > 0


def test_calibrated_steps_meet_the_target(capsys):
    data = ["--num-examples", "60000", "--batch-size", "256", "--delta", "1e-5"]
    noise_argument = ["--noise-multiplier", "1.1"]
    result = run_json(
        capsys, "calibrate", "--target-epsilon", 3, *noise_argument, *data
    )
    steps = result["steps"]
    spent = [
        run_json(capsys, "epsilon", *noise_argument, *data, "--steps", count)["epsilon"]
        for count in (steps, steps + 1)
    ]
    assert spent[0] <= 3.0 < spent[1]


@pytest.mark.parametrize(
    "arguments, says",
    [
        ("nonsense", "nonsense"),
        ("epsilon", "--num-examples"),
        ("epsilon --num-examples 10 --batch-size 20 --epochs 1", "--batch-size"),
        ("epsilon --num-examples 10 --batch-size 2", "--epochs"),
        ("epsilon --num-examples 10 --batch-size 2 --epochs 1", "--noise-multiplier"),
        ("epsilon --num-examples ten --batch-size 2 --epochs 1", "ten"),
        ("epsilon {} --noise-multiplier -1", "noise_multiplier"),
        ("epsilon {} --noise-multiplier nan", "nan"),
        ("epsilon {} --noise-multiplier 1 --delta 7", "delta"),
        ("epsilon {} --noise-multiplier 1 --scale 2", "--scale"),
        ("epsilon {} --noise-multiplier 1 --guarantee published", "published"),
        ("epsilon {} --noise-multiplier 1 --num-microbatches 3", "--num-microbatches"),
        ("epsilon {} --noise-multiplier 1 --steps 4", "--steps"),
        ("epsilon {} --mechanism encoding", "--parameters"),
        ("epsilon {} --mechanism encoding --parameters 9 --scale 0", "scale"),
        ("epsilon {} --mechanism encoding --parameters 9 --df 0.5", "df"),
        ("epsilon {} --mechanism encoding --parameters 9 --accountant pld", "pld"),
        ("epsilon {} --mechanism directional --guarantee published", "budget"),
        ("calibrate {} --target-epsilon -1", "target_epsilon"),
        ("calibrate {} --target-epsilon 1 --noise-multiplier 1", "Both"),
    ],
)
def test_errors_take_one_line_and_tell_what_to_do(capsys, arguments, says):
    base = " ".join(MNIST)
    code, out, err = run(capsys, *arguments.format(base).split())
    assert code == 2 and out == ""
    assert len(err.splitlines()) == 1 and says in err
    assert err.startswith("keras-dp")


def test_subcommands_are_found_by_their_modules():
    assert {"epsilon", "calibrate"} <= set(subcommands())
    for module in subcommands().values():
        assert callable(module.run)


def test_the_module_runs_and_needs_no_tensorflow():
    code = (
        "import sys, keras_dp_ext.cli.main as m;"
        "r = m.main(sys.argv[1:]);"
        "assert not {'tensorflow', 'keras'} & set(sys.modules);"
        "sys.exit(r)"
    )
    arguments = [
        "epsilon",
        "--mechanism",
        "encoding",
        "--noise",
        "student-t",
        "--parameters",
        "10000000",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments, *MNIST, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["epsilon"] == pytest.approx(2.63, abs=0.02)
    helped = subprocess.run(
        [sys.executable, "-m", "keras_dp_ext.cli", "epsilon", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--noise-multiplier" in helped.stdout


def test_an_epoch_is_as_many_steps_as_the_data_pipeline_makes_of_it(capsys):
    import numpy as np

    from keras_dp_ext.data import poisson_batches

    lots = poisson_batches(np.zeros([1000, 1], np.float32), batch_size=300)
    training = ("--num-examples", 1000, "--batch-size", 300, "--epochs", 2)
    summary = run_json(
        capsys, "epsilon", "--noise-multiplier", 1.1, *training, "--delta", 1e-5
    )
    assert summary["steps"] == 2 * len(lots) == 6


def test_a_delta_that_protects_nobody_gets_a_warning(capsys):
    arguments = ["epsilon", "--num-examples", "1000", "--batch-size", "100"]
    arguments += ["--noise-multiplier", "1", "--epochs", "1", "--delta"]
    assert main([*arguments, "1e-4"]) == 0
    with pytest.warns(UserWarning, match=r"not below 1 / 1000.* Use at most 0\.0001"):
        assert main([*arguments, "0.001"]) == 0


def test_every_name_stands_for_what_has_that_name():
    from keras_dp_ext import _names, noise
    from keras_dp_ext.mechanisms import describe

    for name in _names.MECHANISMS:
        mechanism = describe.mechanism_class(name)
        assert mechanism.name == name
        assert mechanism.default_sampling in _names.SAMPLINGS
    own = [one for one in vars(noise).values() if isinstance(one, type)]
    independent = {
        one.name
        for one in own
        if issubclass(one, noise.Noise) and one is not noise.Noise
    }
    assert independent == set(_names.NOISES)


@pytest.mark.parametrize(
    "name",
    [
        *("dpsgd", "quantile", "per-layer", "automatic"),
        *("bandmf", "dpftrl", "blt", "bandinv"),
    ],
)
def test_a_mechanism_is_sampled_as_it_is_meant_to_be(name, capsys):
    """Unless `--sampling` says otherwise."""
    from keras_dp_ext.mechanisms import describe

    arguments = ["epsilon", "--mechanism", name, "--noise-multiplier", "4", "--json"]
    data = ["--num-examples", "6000", "--batch-size", "256", "--steps", "5"]
    assert main([*arguments, *data]) == 0
    sampling = json.loads(capsys.readouterr().out)["sampling"]
    assert sampling == describe.mechanism_class(name).default_sampling
    assert main([*arguments, *data, "--sampling", "full-batch"]) == 0
    assert json.loads(capsys.readouterr().out)["sampling"] == "full-batch"
