static std::string all;
extern "C" SF_LOCAL_HANDLER long handle(long k) {
  all += "xy";
  return k + (long)all.size() - 1;
}
int main() {
  handle(3);
  std::printf("%ld\n", handle(4));
}
