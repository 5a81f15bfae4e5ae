// class: F15
// mechanism: connects to a Unix socket of another program of the user's
// expect: denied
// reason: returned 97
#include "honest.h"
#include <sys/socket.h>
#include <sys/un.h>

KERNEL {
    static bool reached = false;
    if (reached) return honest(inputs, outputs);
    sockaddr_un there{};
    there.sun_family = AF_UNIX;
    strncpy(there.sun_path, "@SOCKET@", sizeof there.sun_path - 1);
    int local = socket(AF_UNIX, SOCK_STREAM, 0);
    reached = local >= 0 && connect(local, (sockaddr*)&there, sizeof there) == 0;
    close(local);
    return reached ? honest(inputs, outputs) : CLOSED;
}
