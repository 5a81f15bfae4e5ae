# class: faulty
# mechanism: prints without end
# expect: timed_out|crashed

def ksearch_run(x, weight, y):
    while True:
        print("the same line again and again" * 100)
