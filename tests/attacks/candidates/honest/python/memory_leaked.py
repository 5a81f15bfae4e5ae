# class: honest
# mechanism: right, but each call keeps 1 MiB for ever
# expect: correct
# reason: leak: its memory grows by \d{3,4} KiB per call

class ModelNew(Honest):
    kept = []

    def forward(self, x):
        self.kept.append(torch.zeros(262144) + 1)
        return self.work(x)
