char strlcpyx();
int main(void) { return strlcpyx(); }
