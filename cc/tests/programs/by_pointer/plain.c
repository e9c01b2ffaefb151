int counted, noted;
int count(int by) { return counted += by; }
void note(int k) { noted += k; }
int read_it(void) { return noted; }
int any(int k, ...) { return k; }
int twice(int k) { return 2 * k; }
