"""Benchmarks of the inside algorithms, of whole training steps and of the decoders."""
