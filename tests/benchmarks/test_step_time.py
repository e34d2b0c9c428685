"""The clock of steps: our own variants and those of other libraries."""

import subprocess
import sys

import pytest

from benchmarks import step_time


def test_a_variant_of_another_library_needs_its_interpreter(capsys):
    with pytest.raises(SystemExit):
        step_time.main(["--workloads", "W1", "--mechanisms", "jax-privacy"])
    assert (
        "Which interpreter has the library of jax-privacy?" in capsys.readouterr().err
    )


@pytest.mark.parametrize("name", [*step_time.OPACUS, *step_time.JAX_PRIVACY])
def test_peers_run_on_the_models_that_they_have(name):
    assert step_time._has_model(name, "W3")
    assert not step_time._has_model(name, "W5")


def test_figures_are_ratios_to_the_plain_step_of_the_same_round():
    class Clock:
        first_step = 1.0

        def __init__(self, seconds):
            self.seconds = iter(seconds)

        def time(self, steps):
            seconds = next(self.seconds)
            return [(seconds, 2 * seconds)] * steps

    # Two turns in front of the rounds; a machine that is busy in the second round.
    figures = step_time.measure(
        {"plain": Clock([1, 1, 1, 10, 1]), "dpsgd": Clock([1, 1, 2, 20, 2])},
        rounds=3,
        seconds=1.0,
    )
    assert figures["dpsgd"]["ratio"] == [2.0, 2.0, 2.0]
    assert figures["dpsgd"]["cpu_ratio"] == 2.0
    assert figures["plain"]["ms"][0] == 1000.0


def test_a_process_of_its_own_answers_with_seconds(monkeypatch, tmp_path):
    script = tmp_path / "peer.py"
    script.write_text(
        "print('noise'); print('seconds [[0.5, 1.0]]', flush=True)\n"
        "for line in __import__('sys').stdin:\n"
        "    print('seconds', [[0.25, 0.5]] * int(line), flush=True)\n"
    )
    monkeypatch.setattr(step_time, "_script", lambda name: [str(script)])
    remote = step_time.Remote(sys.executable, "jax-privacy", "W1")
    try:
        assert remote.first_step == 0.5
        assert remote.time(2) == [[0.25, 0.5]] * 2
    finally:
        remote.close()
    assert isinstance(remote._process, subprocess.Popen)
    assert remote._process.returncode == 0
