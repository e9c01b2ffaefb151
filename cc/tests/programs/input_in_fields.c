struct record {
  int size;
};
struct job {
  struct record head, *next;
  char text[20];
};
int total;
void handle(struct job *j) {
  for (int i = 0; i < j->head.size; i++)
    total += j->text[i];
}
int main(void) {
  struct job j = {.head = {3}, .text = "abc"};
  handle(&j);
  return total != 'a' + 'b' + 'c';
}
