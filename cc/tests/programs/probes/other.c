int other(int k) { return k; }
