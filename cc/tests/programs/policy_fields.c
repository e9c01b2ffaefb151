#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct head {
  unsigned short flags;
  int bytes;
  union {
    struct head *next;
    long number;
  };
  char data[40];
};
typedef struct {
  int kind;
  const char *name;
  char *end;
  void *item;
} connection;
static int what, total;
int struck;
void strike(struct head *h, int now) {
  if (now == what && struck++ == 1)
    h->data[3] ^= 1;
}
void send_out(struct head *h, int n) { total += n + h->data[0]; }
void handle(connection *c) {
  struct head *h = c->item;
  h->data[0]++;
  total += (int)strlen(c->name) + h->data[1];
  strike(h, 1);
  send_out(h, 2);
  strike(h, 2);
}
int main(int argc, char **argv) {
  what = argc > 1 ? atoi(argv[1]) : 0;
  struct head h = {.bytes = 12, .data = "some words!"};
  h.flags = argc > 2 ? 32 : 0;
  connection c = {.name = "n", .item = &h, .end = h.data + 12};
  for (int i = 0; i < 300; i++)
    handle(&c);
  printf("%d\n", total);
}
