"""`normlab ARGV` as a rank of torchrun, which rank 0 kills in the middle of the eighth step.

It then waits until the run has noticed.
"""

import os
import signal
import sys
import time
from typing import Any

from normlab.cli import main
from normlab.train.loop import Trainer


def _killing(self: Trainer, *arguments: Any) -> Any:
    if self.progress.step == 7 and self.runtime.world.rank == 0:
        os.kill(os.getppid(), signal.SIGKILL)
        while signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            time.sleep(0.05)
    return _loss(self, *arguments)


if __name__ == "__main__":
    _loss, Trainer._loss = Trainer._loss, _killing
    sys.exit(main(sys.argv[1:]))
