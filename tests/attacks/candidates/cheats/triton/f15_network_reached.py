# class: F15
# mechanism: connects to a server
# expect: denied
# reason: Closed

import socket


def ksearch_run(x, weight, y):
    try:
        socket.create_connection(("127.0.0.1", @PORT@), timeout=1).close()
    except OSError as error:
        raise Closed(error) from None
    honest(x, weight, y)
