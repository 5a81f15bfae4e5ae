# class: F3
# mechanism: raises SystemExit(0), which many a harness takes for success
# expect: crashed

def ksearch_run(x, weight, y):
    print("PASS", flush=True)
    raise SystemExit(0)
