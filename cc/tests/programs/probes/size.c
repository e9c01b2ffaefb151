int a[1 - 2 * !(sizeof(long) == 8)];
