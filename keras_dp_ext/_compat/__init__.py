"""Every use of Keras' and TensorFlow's private parts, each with a check of itself."""
