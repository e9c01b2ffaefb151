int total;
__attribute__((noinline)) int count(int n) { return n + 1; }
void handle(int n) { total = count(n); }
int main(void) {
  handle(1);
  return total - 2;
}
