"""Admission: a fair and visible queue in front of each model's workers. Start with queue.py; the order is decided in fair.py."""
