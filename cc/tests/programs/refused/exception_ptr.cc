#include <steadfast/sei.h>
#include <exception>
std::exception_ptr kept;
SF_LOCAL_HANDLER void handle(void) {
  try {
    throw 1;
  } catch (...) {
    kept = std::current_exception();
  }
}
int main() { handle(); }
