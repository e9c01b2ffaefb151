/* The library that loaded_clock loads: an rdtsc that no symbol leads to. */
__asm__(".pushsection .text\n"
        ".p2align 4\n"
        ".globl before_hidden_clock\n"
        ".type before_hidden_clock, @object\n"
        "before_hidden_clock: ret\n"
        ".p2align 4\n"
        "rdtsc\n"
        "ret\n"
        ".popsection");
