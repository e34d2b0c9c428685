"""Installs keras_dp_ext; everything is declared in setup.cfg."""

from setuptools import setup

setup()
