#include <steadfast/sei.h>
extern int (*way)(int);
SF_LOCAL_HANDLER int handle(int k) { return way(k); }
int main(int n, char **v) { return handle(n); }
