# class: faulty
# mechanism: raises a class that is no Exception, whose text cannot be made
# expect: crashed

class Strange(BaseException):
    def __str__(self):
        raise RuntimeError("no text")


def ksearch_run(x, weight, y):
    raise Strange
