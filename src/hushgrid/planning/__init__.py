"""From a promise to a policy: noise of every step, clamp, expected error of the price."""
