"""Small faults put into the pure modules, one at a time: a fault that no test finds is a test that is missing."""
