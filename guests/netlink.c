/* Interfaces and names: getifaddrs over netlink finds loopback, getaddrinfo of a number, if_nametoindex. */
#include "guest.h"
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

int main(void) {
    struct ifaddrs *list, *i;
    int lo = 0;
    check("getifaddrs", getifaddrs(&list) == 0);
    for (i = list; i; i = i->ifa_next) lo |= !strcmp(i->ifa_name, "lo");
    check("loopback", lo);
    struct addrinfo h = {.ai_flags = AI_NUMERICHOST}, *r;
    check("getaddrinfo", getaddrinfo("127.0.0.1", "80", &h, &r) == 0 && r->ai_family == AF_INET);
    check("index", if_nametoindex("lo") > 0);
    return done();
}
