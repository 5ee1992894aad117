"""A node's made clock: what it shows at any true time, and back.

Imported by wander_sets.py and by flow/bend.py. The parameters are those of a truth.json, ours or a
recorded set's; times are integers in picoseconds. It does not draw parameters or touch traces.
"""

import math

from xspace import PS


class Clock:
    """A node's REALTIME as a function of the true time; times are integers in picoseconds."""

    def __init__(self, parameters):
        self.p = parameters

    def error_ps(self, t_ps):
        p = self.p
        since_ns = (t_ps - p["t0_ns"] * PS) / PS  # a difference: exact enough in a float
        error_ns = p["off_ns"] + p["ppm"] * 1e-6 * since_ns
        error_ns += p["amp_ns"] * math.sin(2 * math.pi * since_ns / p["period_ns"] + p.get("phase_rad", 0.0))
        error_ns += sum(step_ns for step_ns, at_ns in self.steps() if since_ns >= at_ns)
        return round(error_ns * PS)

    def steps(self):
        """Size of each step and when it happens, ns after t0."""
        steps = [self.p, *self.p.get("more_steps", [])]
        return [(step["step_ns"], step["step_at_ns"]) for step in steps if step["step_ns"] != 0]

    def shows(self, t_ps):
        return t_ps + self.error_ps(t_ps)

    def true_time(self, shown_ps):
        """The true time at which this clock showed `shown_ps`; for clocks without a step."""
        t = shown_ps
        for _ in range(4):  # each pass leaves some 1e-4 of the error before
            t = shown_ps - self.error_ps(t)
        return t
