"""Layers that prepare features: private PCA, scattering."""
