/* Libraries that are loaded one in the place of the other, and that write beside their own code. */
#include "guest.h"
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

static char *image;
static size_t bytes;

static void load_image(const char *path) {
    struct stat st;
    int fd = open(path, O_RDONLY);
    need(path, fd >= 0 && fstat(fd, &st) == 0);
    bytes = st.st_size;
    image = malloc(bytes);
    need("read", image && read(fd, image, bytes) == (ssize_t)bytes);
    close(fd);
}

static void save_image(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0700);
    need(path, fd >= 0 && write(fd, image, bytes) == (ssize_t)bytes);
    close(fd);
}

/* The other number. */
static void renumber(void) {
    const uint32_t one = 0x11111111, two = 0x22222222;
    char *at = memmem(image, bytes, &one, sizeof one);
    need("the number", at != 0);
    memcpy(at, &two, sizeof two);
}

/* Its code may be written. */
static void open_code(void) {
    ElfW(Ehdr) *e = (void *)image;
    ElfW(Phdr) *p = (void *)(image + e->e_phoff);
    for (int i = 0; i < e->e_phnum; i++)
        if (p[i].p_type == PT_LOAD && (p[i].p_flags & PF_X)) p[i].p_flags |= PF_W;
}

/* A call that has trapped twice gets its jump. */
static uintptr_t calls(const char *path, int times) {
    void *m = dlopen(path, RTLD_NOW);
    if (!m) exit((fprintf(stderr, "%s\n", dlerror()), 99));
    char *call = (char *)dlsym(m, "before_hidden_call") + 2;
    for (int i = 0; i < times; i++) {
        long rc = SYS_getppid;
        __asm__ volatile("call *%1" : "+a"(rc) : "r"(call) : "rcx", "r11", "memory");
        printf("%s: number %lx\n", path, rc - getppid());
    }
    dlclose(m);
    return (uintptr_t)call;
}

int main(int argc, char **argv) {
    need("a library", argc > 1);
    load_image(argv[1]);
    renumber();
    save_image("./other.so");
    open_code();
    save_image("./open.so");
    uintptr_t first = calls(argv[1], 1), second = calls("./other.so", 3);
    check("in the same place", first == second);
    void *m = dlopen("./open.so", RTLD_NOW);
    if (!m) return fprintf(stderr, "%s\n", dlerror()), 99;
    int (*count)(void) = (int (*)(void))dlsym(m, "count");
    for (int i = 0; i < 3; i++) printf("count %d\n", count());
    return done();
}
