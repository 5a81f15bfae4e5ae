# class: honest
# mechanism: right, but each call keeps 12 MiB of the device for ever
# expect: correct
# reason: leak: its memory of the GPU grows by \d{4,5} KiB per call

class ModelNew(Honest):
    kept = []

    def forward(self, x):
        self.kept.append(x.new_empty(3 << 20))
        return self.work(x)
