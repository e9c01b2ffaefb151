/* An empty program: the least that start and exit cost. */
int main(void) { return 0; }
