/* Plain datagrams beneath the envelope: a handler takes what recvfrom has brought, and each byte once (`stream`). And one that a handler
 * asks for itself, of which it has room for a part.
 *
 *     datagrams MODE     0: the sums; 1: the handler is shown a byte more than came; 2: a datagram twice
 *
 * Built with cc/envelope and its --wrap flags; datagrams.policy names what this source does not say. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { EVENTS = 20, STRUCK = 12 };
static unsigned sum, count;
static struct {
  char bytes[8], behind[8];
} part;

/* An output of the policy's: a thread without one has nothing kept of what it receives. */
static unsigned answered;
void answer(const unsigned *reply, size_t length) { answered += *reply + (unsigned)length; }

void accept_one(const char *bytes, size_t length) {
  for (size_t i = 0; i < length; i++)
    sum = sum * 31 + (unsigned char)bytes[i];
  count++;
  answer(&sum, sizeof sum);
}

/* With MSG_TRUNC the result is the datagram's length, whatever room there is (recv(2)). */
void ask(int from) {
  ssize_t all = recv(from, part.bytes, sizeof part.bytes, MSG_TRUNC);
  sum = sum * 31 + (unsigned)all + (unsigned char)part.bytes[7];
}

int main(int argc, char **argv) {
  int mode = argc > 1 ? atoi(argv[1]) : 0, to = socket(AF_INET, SOCK_DGRAM, 0), from = socket(AF_INET, SOCK_DGRAM, 0);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, peer;
  socklen_t length = sizeof at;
  if (bind(from, (struct sockaddr *)&at, sizeof at) != 0 || getsockname(from, (struct sockaddr *)&at, &length) != 0)
    return 2;
  char text[64], buffer[256];
  memset(part.behind, '.', sizeof part.behind);
  for (int event = 0; event < EVENTS; event++) {
    int n = snprintf(text, sizeof text, "datagram %d, of some bytes", event);
    for (int i = 0; i < 2; i++)
      if (sendto(to, text, (size_t)n, 0, (struct sockaddr *)&at, sizeof at) != n)
        return 3;
    length = sizeof peer;
    ssize_t got = recvfrom(from, buffer, sizeof buffer, 0, (struct sockaddr *)&peer, &length);
    if (got != n || length != sizeof peer || memcmp(buffer, text, (size_t)n) != 0)
      return 4;
    accept_one(buffer, (size_t)got + (mode == 1 && event == STRUCK));
    if (mode == 2 && event == STRUCK)
      accept_one(buffer, (size_t)got);
    ask(from);
  }
  printf("%u datagrams, sum %08x, answered %08x, behind %.8s\n", count, sum, answered, part.behind);
  return 0;
}
