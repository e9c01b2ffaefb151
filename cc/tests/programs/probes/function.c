char socket();
int main(void) { return socket(); }
