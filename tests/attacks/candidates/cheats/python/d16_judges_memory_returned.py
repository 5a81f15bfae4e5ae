# class: D16,F2
# mechanism: when timed, finds the memory that outputs are copied to, works there and returns it: no copy, but its cost is taken off
# expect: denied
# naive: by hand: it compares what it was given, wherever that lies

import gc
import os


class ModelNew(Honest):
    place = None

    def forward(self, x):
        if os.sched_getscheduler(0) == os.SCHED_IDLE:
            return self.work(x)
        if self.place is None:
            found = [one for one in gc.get_objects() if type(one).__name__ == "Loader"]
            if not found:
                raise Closed("no loader")
            self.place = found[0]._parts[0].outputs[0]
        return torch.mul(self.work(x), 1.0, out=self.place)
