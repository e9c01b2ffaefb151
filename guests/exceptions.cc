/* C++ exceptions: thrown through frames with destructors, rethrown, caught by base, from a library call, uncaught at last. */
#include <cstdio>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

struct Loud { int n; explicit Loud(int i) : n(i) {} ~Loud() { std::printf("~%d ", n); } };

static int deep(int n) {
    Loud l(n);
    getppid();
    if (n == 0) throw std::runtime_error("bottom");
    return deep(n - 1) + 1;
}

int main(int argc, char **) {
    for (int i = 0; i < 5; i++) {
        try { deep(i); }
        catch (const std::exception &e) { std::printf("caught %s\n", e.what()); }
    }
    try {
        try { std::vector<int> v; v.at(3); }
        catch (const std::logic_error &) { std::puts("again"); throw; }
    } catch (const std::out_of_range &) { std::puts("out of range"); }
    std::fflush(stdout);
    if (argc > 1) throw 42;
    return 4;
}
