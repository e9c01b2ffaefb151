static int total;
int isatty(int k) { return total += k; }
