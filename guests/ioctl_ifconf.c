/* SIOCGIFCONF: an ioctl whose structure points to the buffer that it fills. Here a buffer with room, one that is too small, and
 * none, which asks how much there is. */
#include "guest.h"
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

int main(void) {
    struct ifreq list[64];
    struct ifconf conf = { sizeof list, { (char *)list } };
    int s = socket(AF_INET, SOCK_DGRAM, 0), all, named = 1;
    need("socket", s >= 0);
    check("asked", ioctl(s, SIOCGIFCONF, &conf) == 0);
    all = conf.ifc_len;
    sink(list, (size_t)all);
    for (int i = 0; i < all / (int)sizeof *list; i++) named &= if_nametoindex(list[i].ifr_name) != 0;
    check("each name is an interface's", named);
    conf = (struct ifconf){ 0, { NULL } };
    check("how much there is", ioctl(s, SIOCGIFCONF, &conf) == 0 && conf.ifc_len >= all);
    memset(list, 7, sizeof list);
    conf = (struct ifconf){ sizeof *list - 1, { (char *)list } };
    check("no room", ioctl(s, SIOCGIFCONF, &conf) == 0 && conf.ifc_len == 0 && list[0].ifr_name[0] == 7);
    conf = (struct ifconf){ sizeof list, { (char *)8 } };
    answer("a buffer that is not there", all == 0 || (ioctl(s, SIOCGIFCONF, &conf) == -1 && errno == EFAULT));
    return done();
}
