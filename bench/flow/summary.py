"""What is said of the errors of a trace's times.

The last step of jax_truth.py and torch_truth.py. It does not decide what is good enough.
"""

import json


def tell(events, errors_ns):
    """Prints a line of JSON: how many events, and the median, 99th percentile and largest error."""
    errors = sorted(errors_ns)
    at = lambda percent: errors[min(len(errors) * percent // 100, len(errors) - 1)]
    print(json.dumps({"events": events, "median_ns": at(50), "p99_ns": at(99), "worst_ns": errors[-1]}))
