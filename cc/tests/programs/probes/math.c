#include <math.h>
int main(int n, char **v) { (void)v; return cos(n) > 2; }
