#include <stdio.h>
#include <stdlib.h>
struct node {
  struct node *next;
  long v;
};
static struct node *list;
long total[4];
static struct node *make(void) { return malloc(sizeof(struct node)); }
void push(long v) {
  struct node *n = make();
  n->v = v;
  n->next = list;
  list = n;
  total[v & 3] += v;
}
int main(int argc, char **argv) {
  for (long i = 0; i < 9; i++)
    push(i * i);
  if (argc > 1)
    __asm__ volatile("xorb $4, (%0)" ::"r"(argv[1][0] == 'n' ? (char *)&list->next->v : (char *)&total[1]) : "memory");
  push(5);
  long s = 0;
  for (struct node *n = list; n; n = n->next)
    s = s * 3 + n->v;
  printf("%ld %ld\n", s, total[1]);
  return 0;
}
