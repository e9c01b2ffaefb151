#include <linux/types.h>
#include <linux/time.h>
#include <asm/stat.h>
#include <asm/statfs.h>
#include <linux/stat.h>
#include <linux/resource.h>
#include <linux/time_types.h>
#include <linux/times.h>
#include <linux/timex.h>
#include <linux/utsname.h>
#include <linux/sysinfo.h>
#include <linux/capability.h>
#include <linux/eventpoll.h>
#include <linux/poll.h>
#include <asm/signal.h>
#include <asm/siginfo.h>
#include <linux/mqueue.h>
#include <linux/sem.h>
#include <linux/msg.h>
#include <linux/uio.h>
#include <linux/utime.h>
#include <linux/fcntl.h>
typedef __kernel_uid32_t uid_t; typedef __kernel_gid32_t gid_t;
_Static_assert(__builtin_offsetof(siginfo_t, si_status) + 4 == 28, "waitid");
