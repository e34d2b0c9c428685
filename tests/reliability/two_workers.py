"""Runs a script as two workers that find each other."""

import json
import os
import pathlib
import socket
import subprocess
import sys


def run_two_workers(script, results, timeout):
    """Runs `script` twice, each with the path of its own result as its argument.

    Args:
        script: Name of a file in this folder.
        results: Two paths.
        timeout: Seconds, for both together.
    """
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(2)]
    processes = []
    for index, result in enumerate(results):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": {"worker": addresses}, "task": task})
        processes.append(
            subprocess.Popen(
                [sys.executable, pathlib.Path(__file__).with_name(script), result],
                env={**os.environ, "TF_CONFIG": config},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        logs = [process.communicate(timeout=timeout)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], logs


def _free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
