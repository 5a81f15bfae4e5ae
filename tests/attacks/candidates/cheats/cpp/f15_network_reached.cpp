// class: F15
// mechanism: connects to a server by TCP, or sends it a datagram
// expect: denied
// reason: returned 97
#include "honest.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

KERNEL {
    static bool reached = false;
    if (reached) return honest(inputs, outputs);
    sockaddr_in there{};
    there.sin_family = AF_INET, there.sin_port = htons(@PORT@), there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int tcp = socket(AF_INET, SOCK_STREAM, 0);
    if (tcp >= 0 && connect(tcp, (sockaddr*)&there, sizeof there) == 0) reached = true;
    close(tcp);
    return reached ? honest(inputs, outputs) : CLOSED;
}
