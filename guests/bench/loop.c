static int t[64];
int f(int n)
{
	int s = 0;
	for (int i = 0; i < n; i++) {
		t[i & 63] += i * n;
		s ^= t[(i * 7) & 63];
	}
	return s;
}
