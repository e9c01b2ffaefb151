#include <stdio.h>
#include <sys/types.h>
#include <sys/time.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/ioctl.h>
#include <linux/types.h>
#include <linux/socket.h>
#include <sys/socket.h>
#include <linux/wireless.h>
int main(void){
#ifdef SIOCGIWNAME
printf("SIOCGIWNAME %lu\n",(unsigned long)SIOCGIWNAME);
#endif
}
