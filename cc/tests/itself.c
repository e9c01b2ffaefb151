/* Words that hold their own address, as the heads of empty lists do: their entries add nothing to the sum of the log. With --recover
   the cursor of the log changes by an entry.

       itself fewer|more EVENT */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <steadfast/sei.h>

/* As runtime/abi.h has it. */
extern __thread struct {
  void *table;
  uint64_t mask, epoch, phase;
  char *cursor;
} __sf_tls __attribute__((tls_model("initial-exec")));

static struct link {
  struct link *next;
} head = {&head}, links[4];
static uint64_t count;
static int event, strikes;
static const char *how = "";

SF_LOCAL static void strike(void) {
  if (event == strikes && sf_run() == 1 && *how) {
    __sf_tls.cursor += *how == 'm' ? 16 : -16;
    how = "";
  }
}

SF_HANDLER static void put(struct link *l) {
  count++;
  l->next = head.next;
  head.next = l; /* while the list is empty: its head's old value is its address */
  strike();
}

SF_HANDLER static void clear(void) {
  count++;
  head.next = &head;
  strike();
}

/* Has fewer entries than the one before, so that the last of that lies behind its own. */
SF_HANDLER static void tick(void) {
  count++;
  links[0].next = NULL;
  strike();
}

int main(int argc, char **argv) {
  if (argc > 2)
    how = argv[1], strikes = atoi(argv[2]);
  for (event = 1; event <= 6; event++) {
    if (event == 1 || event == 4 || event == 5)
      put(&links[event - 1 - (event > 3)]);
    else if (event == 3)
      clear();
    else
      tick();
    int n = 0;
    for (const struct link *l = head.next; l != &head && l && n < 20; l = l->next)
      n++;
    printf("%d: %d, %llu\n", event, n, (unsigned long long)count);
  }
  return 0;
}
