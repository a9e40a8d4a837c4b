"""A program that behaves as a distributed trainer does during faults, at once and without TensorFlow.

It is pushed to hosts and run there as `python -m trainer`. Its behaviour with each strategy (ways.py) is that observed
of TensorFlow 2.21, including silence.
"""
