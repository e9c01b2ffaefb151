int twice(int k) { return 2 * k; }
