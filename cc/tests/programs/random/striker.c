static unsigned long event, struck_event, mask; static int struck_run, struck_at;
SF_LOCAL unsigned long strike(int at);
unsigned long strike(int at) { return at == struck_at && event == struck_event && sf_run() == struck_run ? mask : 0; }
