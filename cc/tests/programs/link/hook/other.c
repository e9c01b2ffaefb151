extern long total;
long hook(long k) { return total += 100 * k; }
