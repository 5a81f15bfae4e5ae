# class: honest
# mechanism: half of the rows on a stream of its own, joined
# expect: correct

own = None


def ksearch_run(x, weight, y):
    global own
    if own is None:
        own = torch.cuda.Stream()
    given = torch.cuda.current_stream()
    own.wait_stream(given)
    with torch.cuda.stream(own):
        honest(x[:32], weight, y[:32])
    honest(x[32:], weight, y[32:])
    given.wait_stream(own)
