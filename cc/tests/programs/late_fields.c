static struct {
  long a, b;
} s;
static long count;
void handle(long n) {
  s.a += n;
  s.b ^= n;
}
void tick(void) { __atomic_fetch_add(&count, 1, 5); }
int main(void) {
  handle(3);
  tick();
  handle(4);
  return s.a + s.b - 14 + count - 1;
}
