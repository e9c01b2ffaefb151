void _start(void) { for (;;) ; }
