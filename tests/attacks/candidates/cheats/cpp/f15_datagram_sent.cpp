// class: F15
// mechanism: sends a datagram to a server
// expect: denied
// reason: returned 97
#include "honest.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

KERNEL {
    sockaddr_in there{};
    there.sin_family = AF_INET, there.sin_port = htons(@UDP_PORT@), there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    if (udp < 0 || connect(udp, (sockaddr*)&there, sizeof there) != 0 || send(udp, "hi", 2, 0) != 2) return CLOSED;
    // In a network of its own, the refusal comes back as an error of the socket.
    pause_us(1000);
    return send(udp, "hi", 2, 0) == 2 ? honest(inputs, outputs) : CLOSED;
}
