# class: B14
# mechanism: leaves its core, so that torch's threads compute on others as well
# expect: denied
# reason: Closed
# task: single
# naive: by hand: it is no faster than it looks, but on more cores than it says
import os


class ModelNew(Honest):
    def forward(self, x):
        if len(os.sched_getaffinity(0)) == 1:
            torch.set_num_threads(2)
            try:
                os.sched_setaffinity(0, range(1024))
            except OSError:
                pass
            if len(os.sched_getaffinity(0)) == 1:
                raise Closed
        return self.work(x)
