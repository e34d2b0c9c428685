"""The models of the papers, as functions that return plain Keras models."""

from benchmarks.models.alexnet import alexnet
from benchmarks.models.lenet import lenet
from benchmarks.models.mnist_cnn import mnist_cnn
from benchmarks.models.resnet18 import resnet18

__all__ = ["alexnet", "lenet", "mnist_cnn", "resnet18"]
