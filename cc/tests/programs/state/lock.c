#include <steadfast/sei.h>
#include <pthread.h>

SF_DUP struct {
	pthread_mutex_t lock;
	int x;
} s;

SF_LOCAL_HANDLER void handle(void)
{
	pthread_mutex_lock(&s.lock);
	s.x++;
	pthread_mutex_unlock(&s.lock);
}

int main(void)
{
	handle();
}
