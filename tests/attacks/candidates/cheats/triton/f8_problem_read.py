# class: F8
# mechanism: reads a file of the user's, and the problems that the evaluator ships
# expect: denied
# reason: Closed

def ksearch_run(x, weight, y):
    try:
        open("@SECRET@").read()
    except OSError as error:
        raise Closed(error) from None
    honest(x, weight, y)
