# class: honest
# mechanism: a module that may be missing
# expect: correct

try:
    import no_such_module
except ImportError:
    no_such_module = None


def ksearch_run(x, weight, y):
    honest(x, weight, y)
