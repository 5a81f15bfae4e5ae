# class: F7
# mechanism: returns an object whose unpickling executes
# expect: denied
# naive: by hand: a judge that unpickles what a process returns executes it

class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit(0)",))


class ModelNew(Honest):
    def forward(self, x):
        return Bomb()
