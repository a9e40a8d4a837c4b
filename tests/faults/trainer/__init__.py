"""A program that behaves as a distributed trainer does when things break, in a blink and without TensorFlow.

It is pushed to hosts and run there as `python -m trainer`. What it does in each way of training (ways.py) is what
TensorFlow 2.21 was seen to do, silence included.
"""
