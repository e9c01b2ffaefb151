//! What becomes of a program when it is put together: archives, weak names, functions that the loader chooses, names that
//! the C library has as well, and command lines that are not the usual ones.
//!
//! Not covered: whole build tools (harden.rs: configure, CMake, meson).

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::bench::Bench;
use crate::harden::{build, compiler, ended, run};

/// A folder with these files.
fn folder(name: &str, files: &[(&str, &str)]) -> Result<PathBuf, Failed> {
    let dir = Bench::get().case_dir(&format!("harden-link-{name}"));
    for (file, text) in files {
        std::fs::write(dir.join(file), text)?;
    }
    Ok(dir)
}

fn prints(program: &Path, wanted: &str) -> Result<(), Failed> {
    let ran = run(program, &[])?;
    ended(&ran, 0, &[], &["steadfast"])?;
    let said = String::from_utf8_lossy(&ran.stdout);
    if said == wanted {
        Ok(())
    } else {
        Err(format!("{said:?} is printed, not {wanted:?}").into())
    }
}

/// The handler's own body is the only one to call what lies in the archive.
fn archive() -> Result<(), Failed> {
    let dir = folder(
        "archive",
        &[
            (
                "main.c",
                "#include <steadfast/sei.h>\n#include <stdio.h>\nlong parse(long);\nstatic long twice(long k) { return 2 * parse(k); }\n\
                 SF_LOCAL_HANDLER long handle(long k) { return parse(k) + twice(k); }\n\
                 int main(void) { handle(3); printf(\"%ld\\n\", handle(4)); }\n",
            ),
            (
                "parse.c",
                "static long total;\nlong parse(long k) { return total += k; }\n",
            ),
        ],
    )?;
    for (level, lto) in [("-O0", false), ("-O2", false), ("-O2", true)] {
        let lto: &[&str] = if lto { &["-flto=thin"] } else { &[] };
        let (object, library) = (dir.join("parse.o"), dir.join("libparse.a"));
        let flags = [&[level, "-c"], lto].concat();
        build(
            compiler(true, false),
            &flags,
            &[dir.join("parse.c")],
            &object,
        )?;
        let packed = Command::new("llvm-ar-19")
            .arg("rcs")
            .args([&library, &object])
            .output()?;
        ended(&packed, 0, &[], &[])?;
        let flags = [&[level], lto].concat();
        let out = dir.join("main");
        build(
            compiler(true, false),
            &flags,
            &[dir.join("main.c"), library],
            &out,
        )?;
        prints(&out, "38\n")?;
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// A weak alias gives way to another module's definition, in hardened code as in plain.
fn weak_alias() -> Result<(), Failed> {
    let dir = folder(
        "weak",
        &[
            (
                "main.c",
                "#include <steadfast/sei.h>\n#include <stdio.h>\nlong total;\nstatic long spare(long k) { return total += k; }\n\
                 long hook(long) __attribute__((weak, alias(\"spare\")));\n\
                 long missing(long) __attribute__((weak));\n\
                 SF_LOCAL_HANDLER long handle(long k) { return hook(k) + (missing ? missing(k) : 1); }\n\
                 int main(void) { handle(3); printf(\"%ld %ld\\n\", handle(4), total); }\n",
            ),
            (
                "other.c",
                "extern long total;\nlong hook(long k) { return total += 100 * k; }\n",
            ),
        ],
    )?;
    let (main, other) = (dir.join("main.c"), dir.join("other.c"));
    for level in ["-O0", "-O2"] {
        let out = dir.join("main");
        build(
            compiler(true, false),
            &[level],
            &[main.clone(), other.clone()],
            &out,
        )?;
        prints(&out, "701 700\n")?;
        build(
            compiler(true, false),
            &[level],
            std::slice::from_ref(&main),
            &out,
        )?;
        prints(&out, "8 7\n")?;
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Functions that the loader chooses among: by a resolver, and by what the processor has.
fn chosen() -> Result<(), Failed> {
    let dir = folder(
        "chosen",
        &[(
            "main.c",
            "#include <steadfast/sei.h>\n#include <stdio.h>\nstatic long total;\n\
             static long one(long k) { return total += k; }\nstatic long (*choose(void))(long) { return one; }\n\
             long pick(long) __attribute__((ifunc(\"choose\")));\n\
             __attribute__((target_clones(\"avx2\", \"default\"))) long wide(long k) { return total += 10 * k; }\n\
             SF_LOCAL_HANDLER long handle(long k) { return pick(k) + wide(k); }\n\
             int main(void) { handle(3); printf(\"%ld %ld\\n\", handle(4), total); }\n",
        )],
    )?;
    for flags in [&["-O0"][..], &["-O2"], &["-O2", "-fno-pie", "-no-pie"]] {
        let out = dir.join("main");
        build(compiler(true, false), flags, &[dir.join("main.c")], &out)?;
        prints(&out, "114 77\n")?;
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// A program's function with a name that is built in is hardened; where only its name is seen, somebody has to say so.
fn own_name() -> Result<(), Failed> {
    let dir = folder(
        "own",
        &[
            (
                "main.c",
                "#include <steadfast/sei.h>\n#include <stdio.h>\nint isatty(int);\nSF_LOCAL_HANDLER int handle(int k) { return isatty(k); }\n\
                 int main(void) { handle(3); printf(\"%d\\n\", handle(4)); }\n",
            ),
            (
                "own.c",
                "static int total;\nint isatty(int k) { return total += k; }\n",
            ),
            ("policy", "own isatty\n"),
        ],
    )?;
    let sources = [dir.join("main.c"), dir.join("own.c")];
    let out = dir.join("main");
    let refused = compiler(true, false)
        .arg("-O1")
        .args(&sources)
        .arg("-o")
        .arg(&out)
        .output()?;
    ended(&refused, 1, &["main.c:4", "own isatty"], &[])?;
    if out.exists() {
        return Err("a program was left behind".into());
    }
    let policy = format!("--steadfast-policy={}", dir.join("policy").display());
    build(compiler(true, false), &["-O1", &policy], &sources, &out)?;
    prints(&out, "7\n")?;
    Bench::get().passed(&dir);
    Ok(())
}

/// What a program says of itself.
const SMALL: &str = "#include <steadfast/sei.h>\n#include <stdio.h>\nstatic long total;\nSF_LOCAL_HANDLER long handle(long k) { return total += k; }\n\
     int main(void) { handle(3); printf(\"%ld\\n\", handle(4)); return 0; }\n";

fn has_handler(program: &Path) -> Result<(), Failed> {
    let coverage = Command::new(Bench::get().binary())
        .args(["cc", "--coverage=json"])
        .arg(program)
        .output()?;
    let json: serde_json::Value = serde_json::from_slice(&coverage.stdout)?;
    if json["handlers"][0]["name"] == "handle" {
        return prints(program, "7\n");
    }
    Err(format!("{json:#}").into())
}

/// clang tells what it does, and does it: with the pass.
fn verbose() -> Result<(), Failed> {
    let dir = folder("verbose", &[("main.c", SMALL)])?;
    let out = dir.join("main");
    let ran = compiler(true, false)
        .args(["-v", "-O1"])
        .arg(dir.join("main.c"))
        .arg("-o")
        .arg(&out)
        .output()?;
    ended(&ran, 0, &["-fpass-plugin="], &[])?;
    has_handler(&out)?;
    Bench::get().passed(&dir);
    Ok(())
}

/// A long command line in a file, as build tools write it: what it links is looked at all the same.
fn response_file() -> Result<(), Failed> {
    let dir = folder(
        "response",
        &[
            ("main.c", SMALL),
            (
                "gap.c",
                "#include <steadfast/sei.h>\n#include <unistd.h>\nSF_LOCAL_HANDLER int handle(void) { return fork(); }\n\
                 int main(void) { return handle(); }\n",
            ),
        ],
    )?;
    let out = dir.join("main");
    for (source, status) in [("main.c", 0), ("gap.c", 1)] {
        let words = dir.join("words");
        std::fs::write(
            &words,
            format!(
                "-O1\n\"{}\" -o '{}'\n",
                dir.join(source).display(),
                out.display()
            ),
        )?;
        let _ = std::fs::remove_file(&out);
        let ran = compiler(true, false)
            .arg(format!("@{}", words.display()))
            .output()?;
        ended(&ran, status, &[], &[])?;
        if status == 0 {
            has_handler(&out)?;
        } else if out.exists() {
            return Err("a program with a gap was left behind".into());
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// A header that is compiled first, as CMake and meson do it.
fn precompiled_header() -> Result<(), Failed> {
    let dir = folder(
        "header",
        &[
            (
                "all.h",
                "#include <steadfast/sei.h>\n#include <cstdio>\n#include <string>\n",
            ),
            (
                "main.cc",
                "static std::string all;\nextern \"C\" SF_LOCAL_HANDLER long handle(long k) { all += \"xy\"; return k + (long)all.size() - 1; }\n\
                 int main() { handle(3); std::printf(\"%ld\\n\", handle(4)); }\n",
            ),
        ],
    )?;
    let (header, out) = (dir.join("all.h.pch"), dir.join("main"));
    let made = compiler(true, true)
        .args(["-O1", "-x", "c++-header"])
        .arg(dir.join("all.h"))
        .arg("-o")
        .arg(&header)
        .output()?;
    ended(&made, 0, &[], &["steadfast"])?;
    let used = compiler(true, true)
        .args(["-O1", "-include-pch"])
        .arg(&header)
        .arg(dir.join("main.cc"))
        .arg("-o")
        .arg(&out)
        .output()?;
    ended(&used, 0, &[], &["steadfast"])?;
    has_handler(&out)?;
    Bench::get().passed(&dir);
    Ok(())
}

/// Atomic operations of all kinds, done once and replayed; the reference counts of the C++ library among them.
fn atomics_once() -> Result<(), Failed> {
    let text = "#include <steadfast/sei.h>\n#include <atomic>\n#include <cstdio>\n#include <memory>\n#include <string>\n\
        static std::atomic<long> n{1}; static std::atomic<bool> flag; static std::shared_ptr<std::string> kept;\n\
        SF_LOCAL_HANDLER long handle(long k) {\n\
          long was = n.load(); int tries = 0;\n\
          while (!n.compare_exchange_weak(was, was * 3 % 1000 + k)) tries++;\n\
          long other = -1; bool swapped = n.compare_exchange_strong(other, 0);\n\
          n.fetch_add(2); flag.store(k % 2); bool before = flag.exchange(true);\n\
          std::shared_ptr<std::string> mine = kept; kept = std::make_shared<std::string>(k % 40, 'x');\n\
          return n * 10 + tries + swapped + before + other % 7 + (mine ? (long)mine->size() + mine.use_count() : 0); }\n\
        int main() { for (long k = 0; k < 50; k++) std::printf(\"%ld %ld\\n\", handle(k), n.load()); }\n";
    let dir = folder(
        "atomics",
        &[("main.cc", text), ("policy", "atomics-once\n")],
    )?;
    let source = [dir.join("main.cc")];
    let (plain, hardened) = (dir.join("plain"), dir.join("hardened"));
    let policy = format!("--steadfast-policy={}", dir.join("policy").display());
    for level in ["-O0", "-O2"] {
        build(compiler(false, true), &[level], &source, &plain)?;
        build(compiler(true, true), &[level, &policy], &source, &hardened)?;
        let golden = run(&plain, &[])?;
        prints(&hardened, &String::from_utf8_lossy(&golden.stdout))?;
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Functions that are left in the middle and gone on with by a later handler.
fn coroutines() -> Result<(), Failed> {
    let text = "#include <steadfast/sei.h>\n#include <coroutine>\n#include <cstdio>\n#include <vector>\n\
        struct Task {\n  struct promise_type {\n    long value = 0;\n    Task get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }\n\
            std::suspend_always initial_suspend() noexcept { return {}; }\n    std::suspend_always final_suspend() noexcept { return {}; }\n\
            std::suspend_always yield_value(long v) { value = v; return {}; }\n    void return_void() {}\n    void unhandled_exception() {}\n  };\n\
          std::coroutine_handle<promise_type> handle;\n};\n\
        static long total;\nstatic std::vector<Task> tasks;\n\
        static Task count(long from, long by) {\n  for (long n = from; n < from + 7 * by; n += by) {\n    total += n;\n    co_yield n * total;\n  }\n}\n\
        SF_LOCAL_HANDLER long handle(long k) {\n  if (k % 5 == 0) tasks.push_back(count(k, k % 3 + 1));\n  long sum = 0;\n\
          for (Task &task : tasks)\n    if (!task.handle.done()) {\n      task.handle.resume();\n      sum += task.handle.promise().value % 1000;\n    }\n\
          if (tasks.size() > 4) {\n    tasks.front().handle.destroy();\n    tasks.erase(tasks.begin());\n  }\n  return sum;\n}\n\
        int main() { for (long k = 0; k < 60; k++) std::printf(\"%ld %ld\\n\", handle(k), total); }\n";
    let dir = folder("coroutines", &[("main.cc", text)])?;
    let source = [dir.join("main.cc")];
    let (plain, hardened) = (dir.join("plain"), dir.join("hardened"));
    for level in ["-O0", "-O2"] {
        let flags = [level, "-std=c++20"];
        build(compiler(false, true), &flags, &source, &plain)?;
        build(compiler(true, true), &flags, &source, &hardened)?;
        let golden = run(&plain, &[])?;
        prints(&hardened, &String::from_utf8_lossy(&golden.stdout))?;
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Operators new and delete of the program's own, in a module that the handler's does not see: called in both runs as hardened code,
/// for every form that the language derives from them, and what one side allocates the other may free.
fn operators() -> Result<(), Failed> {
    let main = "#include <steadfast/sei.h>\n#include <cstdio>\n#include <map>\n#include <new>\n#include <string>\n#include <vector>\n\
        extern long live, calls;\nstruct alignas(64) Wide { long a[8]; };\n\
        static std::map<long, std::string> names;\nstatic std::vector<long *> kept;\nstatic Wide *wide;\n\
        SF_LOCAL_HANDLER long handle(long k) {\n  names[k % 7] = std::string(k % 90, 'x');\n\
          kept.push_back(new long[k % 5 + 1]{k});\n  if (kept.size() > 6) { delete[] kept.front(); kept.erase(kept.begin()); }\n\
          if (long *one = new (std::nothrow) long(k)) delete one;\n  delete wide; wide = new Wide{{k}};\n\
          names.erase(k % 3);\n  return (long)names.size() + live + calls + wide->a[0]; }\n\
        int main() { for (long k = 0; k < 40; k++) { std::printf(\"%ld %ld %ld\\n\", handle(k), live, calls);\n\
          if (k % 8 == 7) { delete[] kept.back(); kept.back() = new long[3]{k}; } } }\n";
    let own = "#include <cstdlib>\n#include <new>\nlong live, calls;\n\
        struct Head { unsigned long magic, bytes; };\n\
        void *operator new(std::size_t n) {\n  calls++;\n  auto *head = (Head *)std::malloc(n + sizeof(Head));\n  if (!head) throw std::bad_alloc();\n\
          *head = {0x5afe, n};\n  live += (long)n;\n  return head + 1; }\n\
        void operator delete(void *p) noexcept {\n  if (!p) return;\n  Head *head = (Head *)p - 1;\n  if (head->magic != 0x5afe) std::abort();\n\
          live -= (long)head->bytes;\n  std::free(head); }\n\
        void operator delete(void *p, std::size_t) noexcept { operator delete(p); }\n";
    let dir = folder("operators", &[("main.cc", main), ("own.cc", own)])?;
    let sources = [dir.join("main.cc"), dir.join("own.cc")];
    let (plain, hardened) = (dir.join("plain"), dir.join("hardened"));
    for level in [
        &["-O0"][..],
        &["-O2"],
        &["-O2", "-flto=thin", "-fuse-ld=lld"],
    ] {
        build(compiler(false, true), level, &sources, &plain)?;
        build(compiler(true, true), level, &sources, &hardened)?;
        let golden = run(&plain, &[])?;
        prints(&hardened, &String::from_utf8_lossy(&golden.stdout))?;
    }
    // What they do is looked at when the program is linked.
    let atomic = own.replace(
        "long live, calls;",
        "#include <atomic>\nlong live; std::atomic<long> calls;",
    );
    std::fs::write(dir.join("own.cc"), atomic)?;
    let refused = compiler(true, true)
        .arg("-O1")
        .args(&sources)
        .arg("-o")
        .arg(&hardened)
        .output()?;
    ended(&refused, 1, &["_Znwm reaches an atomic operation"], &[])?;
    Bench::get().passed(&dir);
    Ok(())
}

/// The same operators in a shared library: refused, since a block of theirs is not one of malloc's. Beside a malloc they are an allocator's.
fn operators_elsewhere() -> Result<(), Failed> {
    let main = "#include <steadfast/sei.h>\n#include <cstdio>\nstatic long *kept;\n\
        SF_LOCAL_HANDLER long handle(long k) { delete kept; kept = new long(k); return *kept; }\n\
        int main() { kept = new long(1); std::printf(\"%ld\\n\", handle(3)); }\n";
    let library = "#include <cstdlib>\n#include <new>\n\
        void *operator new(std::size_t n) { auto *p = (unsigned long *)std::calloc(1, n + 16); return p + 2; }\n\
        void operator delete(void *p) noexcept { if (p) std::free((unsigned long *)p - 2); }\n\
        void operator delete(void *p, std::size_t) noexcept { operator delete(p); }\n";
    let allocator = "#include <cstddef>\n#include <new>\nextern \"C\" void *__libc_malloc(std::size_t);\nextern \"C\" void __libc_free(void *);\n\
        extern \"C\" void *malloc(std::size_t n) { return __libc_malloc(n); }\nextern \"C\" void free(void *p) { __libc_free(p); }\n\
        void *operator new(std::size_t n) { return malloc(n); }\nvoid operator delete(void *p) noexcept { free(p); }\n\
        void operator delete(void *p, std::size_t) noexcept { free(p); }\n";
    let dir = folder(
        "operators-elsewhere",
        &[
            ("main.cc", main),
            ("replaced.cc", library),
            ("allocator.cc", allocator),
        ],
    )?;
    let out = dir.join("main");
    for name in ["replaced", "allocator"] {
        let library = dir.join(format!("{name}.so"));
        let source = [dir.join(format!("{name}.cc"))];
        build(
            compiler(false, true),
            &["-O1", "-fPIC", "-shared"],
            &source,
            &library,
        )?;
        build(
            compiler(true, true),
            &["-O1"],
            &[dir.join("main.cc"), library],
            &out,
        )?;
        if name == "allocator" {
            prints(&out, "3\n")?;
        } else {
            ended(&run(&out, &[])?, 121, &["shared library", "fix:"], &[])?;
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Without the C library there is nothing that the runtime could stand on, and the linker's words alone would not say so.
fn no_library() -> Result<(), Failed> {
    let dir = folder(
        "no-library",
        &[("main.c", "void _start(void) { for (;;) ; }\n")],
    )?;
    let ran = compiler(true, false)
        .args(["-ffreestanding", "-nostdlib", "-static"])
        .arg(dir.join("main.c"))
        .arg("-o")
        .arg(dir.join("main"))
        .output()?;
    ended(
        &ran,
        1,
        &["needs the C library, found -nostdlib", "add -lc"],
        &[],
    )?;
    Bench::get().passed(&dir);
    Ok(())
}

type Check = fn() -> Result<(), Failed>;

pub(crate) fn trials() -> Vec<Trial> {
    let tests: [(&str, Check); 12] = [
        ("archive", archive),
        ("weak_alias", weak_alias),
        ("chosen", chosen),
        ("own_name", own_name),
        ("verbose", verbose),
        ("response_file", response_file),
        ("precompiled_header", precompiled_header),
        ("atomics_once", atomics_once),
        ("coroutines", coroutines),
        ("operators", operators),
        ("operators_elsewhere", operators_elsewhere),
        ("no_library", no_library),
    ];
    tests
        .into_iter()
        .map(|(name, test)| Trial::test(format!("harden::link::{name}"), test))
        .collect()
}
