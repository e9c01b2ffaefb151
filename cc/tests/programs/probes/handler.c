int x;
void handle(void) { x++; }
int main(void) { handle(); }
