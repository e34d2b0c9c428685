"""Runs a script as several workers that find each other."""

import json
import os
import pathlib
import socket
import subprocess
import sys


def run_workers(script, results, timeout):
    """Runs `script` once for each result, with the path of that as its argument.

    Args:
        script: Name of a file in this folder.
        results: Paths, one for each worker.
        timeout: Seconds, for all together.
    """
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(len(results))]
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
    assert not any(process.returncode for process in processes), logs


def _free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
