"""Of all that is random here; printed where it is used, so that FAULTS_SEED can repeat it."""

from __future__ import annotations

import os
import random

SEED = int(os.environ.get("FAULTS_SEED", random.SystemRandom().randrange(10**6)))
