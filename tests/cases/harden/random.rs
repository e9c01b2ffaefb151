//! Programs of random statements: no false alarm, and nothing wrong leaves (Section 4 of the paper).

use libtest_mimic::Failed;

use super::compile::{build, compiler, run};
use crate::bench::Bench;
use crate::sample::all;
use crate::trial::Trial;

/// Numbers from a seed (Knuth's 64-bit linear congruence; the upper bits are good enough for choices).
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// A program of random statements over state of all widths; the seed is in its name.
pub(crate) fn random_source(seed: u64) -> String {
    random_text(seed, false).0
}

/// What strikes a random program: in one event and one run, a value changes at one place. The places are numbered.
const STRIKER: &str = include_str!("../../../cc/tests/programs/random/striker.c");

/// The program, and how many places of it can be struck.
fn random_text(seed: u64, strikes: bool) -> (String, u64) {
    let mut dice = Dice(seed);
    let mut places = 0;
    let mut text = String::from(include_str!("../../../cc/tests/programs/random/head.c"));
    if strikes {
        text += STRIKER;
    }
    let functions = 4 + dice.below(5);
    for f in 0..functions {
        text += &format!(
            "static unsigned long f{f}(unsigned long x) {{\n  unsigned long l[4] = {{x, 1, 2, 3}}; struct s t = st[x % 8];\n  calls++;\n"
        );
        for _ in 0..3 + dice.below(10) {
            let (i, j, k) = (dice.below(256), dice.below(256), 1 + dice.below(90));
            if strikes {
                text += &format!("  x ^= strike({places});\n");
                places += 1;
            }
            text += &match dice.below(23) {
                0 => format!(
                    "  u8[(x + {i}) % 256] += (unsigned char)(x >> {});\n",
                    j % 60
                ),
                1 => format!(
                    "  u16[(x * {k}) % 128] ^= (unsigned short)(l[{}] + {i});\n",
                    j % 4
                ),
                2 => format!("  u32[{}] = u32[x % 64] * {k}u + {j};\n", i % 64),
                3 => format!("  u64[(x + {i}) % 32] += u64[{}] + {k};\n", j % 32),
                4 => format!("  f64[{}] = f64[x % 16] * 0.5 + {j};\n", i % 16),
                5 => format!("  memcpy(u8 + {}, u64, {});\n", i % 100, k),
                6 => format!("  memset(u32 + {}, (int)x, {});\n", i % 30, k),
                7 => format!("  memmove(u8 + {}, u8 + {}, {});\n", i % 150, j % 150, k),
                8 => format!("  t.a += {}; t.c ^= x; st[{}] = t;\n", i % 200, j % 8),
                9 => format!(
                    "  free(blocks[{}]); blocks[{}] = calloc(1, {}); memset(blocks[{}], {}, {});\n",
                    i % 8,
                    i % 8,
                    k + 8,
                    i % 8,
                    j % 100,
                    k
                ),
                10 => format!(
                    "  if (blocks[{}]) u64[{}] += *(unsigned char *)blocks[{}];\n",
                    i % 8,
                    j % 32,
                    i % 8
                ),
                11 => format!("  l[{}] = u32[{}] + u16[{}];\n", i % 4, j % 64, k),
                12 => format!(
                    "  snprintf((char *)u8 + {}, {}, \"%lu-%s\", x, \"text\");\n",
                    i % 100,
                    1 + k % 40
                ),
                13 => format!(
                    "  for (unsigned i = 0; i < {k} && u8[{} + i] != (unsigned char)x; i++) u8[{} + i] = u8[{} + i] + 1;\n",
                    i % 150,
                    j % 150,
                    i % 150
                ),
                14 => format!(
                    "  for (unsigned i = 0; i < {}; i++) u64[i] = x * i ^ u64[31 - i];\n",
                    1 + k % 31
                ),
                15 => format!(
                    "  {{ struct s *p = &st[(x + {i}) % 8]; p->b = (unsigned)x; p->a = {}; p->c = {k}; p->d = 7; ((unsigned *)&p->c)[{}] ^= {j}; }}\n",
                    j % 200,
                    i % 2
                ),
                16 => format!(
                    "  for (unsigned r = 0; r < 3; r++) for (unsigned i = 0; i < x % {}; i++) u16[{} * r + i] ^= (unsigned short)(x * r);\n",
                    1 + k % 40,
                    i % 40
                ),
                17 => format!(
                    "  for (unsigned i = 0; i < {}; i++) {{ u32[{} + i] = (unsigned)x * i; u16[i] = u8[i]; u8[(x + {j} * i) % 256] += 3; }}\n",
                    k % 32,
                    i % 32
                ),
                18 => format!(
                    "  for (unsigned i = 0; i < {k}; i++) {{ u8[{} + i] = (unsigned char)(x + i); u8[(x + {j} * i) % 256] ^= 5; }}\n",
                    i % 150
                ),
                19 => format!(
                    "  {{ struct s *p = malloc({k} * sizeof *p); for (unsigned i = 0; i < {k}; i++) {{ p[i].a = 1; p[i].b = i; p[i].c = x; p[i].d = 2; p[i].e = 3; }} \
                     l[1] += p[x % {k}].b; free(p); }}\n"
                ),
                // Cleared, then filled in, on some ways only and behind calls; a loop that counts in one place.
                20 => format!(
                    "  {{ struct s *p = &st[{}]; memset(p, 0, sizeof *p); p->c = x + {i}; if (x & 1) {{ p->b = {j}; calls++; p->a = (unsigned char)x; }} p->d = {k}; }}\n",
                    i % 8
                ),
                21 => format!(
                    "  u64[{}] = x; for (unsigned i = 0; i < x % {}; i++) {{ u64[{}] += u8[i] + strnlen((char *)u8 + i, 4); ((unsigned short *)&u64[{}])[{}] ^= {k}; }}\n",
                    i % 32,
                    1 + k % 20,
                    i % 32,
                    i % 32,
                    j % 4
                ),
                _ if f > 0 => format!("  x += f{}(x + {k}) % 1000;\n", dice.below(f)),
                _ => format!(
                    "  for (unsigned i = 0; i < {k}; i++) u16[i] += (unsigned short)(x * i);\n"
                ),
            };
        }
        text += "  return x + l[0] + l[x % 4] + t.c;\n}\n";
    }
    text += "static unsigned long (*const table[])(unsigned long) = {";
    for f in 0..functions {
        text += &format!("f{f},");
    }
    let (arguments, begin, next) = if strikes {
        (
            "int argc, char **argv",
            "struck_at = argc > 4 ? atoi(argv[1]) : -1; if (argc > 4) { struck_run = atoi(argv[2]); \
             struck_event = strtoul(argv[3], 0, 10); mask = strtoul(argv[4], 0, 16); }",
            "event = i;",
        )
    } else {
        ("void", "", "")
    };
    text += &format!(
        "}};\nSF_LOCAL_HANDLER unsigned long handle(unsigned long x) {{ return table[x % {functions}](x) + f{}(x * 3); }}\n\
         int main({arguments}) {{\n  unsigned long sum = 0;\n  {begin}\n  for (unsigned long i = 0; i < 400; i++) {{\n    {next}\n\
         \x20   sum = sum * 31 + handle(i * 2654435761u % 1000);\n\
         \x20   for (int k = 0; k < 256; k++) sum += u8[k];\n    printf(\"%lu %lu %u %f\\n\", sum, u64[i % 32], u32[i % 64], f64[i % 16]);\n  }}\n  return 0;\n}}\n",
        functions - 1
    );
    (text, places)
}

/// Beside the default: each seed has one of them, or all with STEADFAST_ALL.
const MODES: [&str; 4] = ["--protect=sei", "--recover", "--validate=async", "-O1"];

/// Accuracy (Section 4 of the paper): a random program prints hardened what it prints plain, at -O0 and -O2, and no alarm.
fn random_program(seed: u64) -> Result<(), Failed> {
    let dir = Bench::get().case_dir(&format!("harden-random-{seed}"));
    let source = dir.join("random.c");
    std::fs::write(&source, random_source(seed))?;
    let mut golden: Option<Vec<u8>> = None;
    let modes = MODES.iter().enumerate();
    let modes = modes.filter(|(index, _)| all() || seed - 1 == *index as u64);
    let ways = [(false, ""), (true, "-O0"), (true, "-O2")];
    for (hardened, level) in ways.into_iter().chain(modes.map(|(_, &mode)| (true, mode))) {
        let out = dir.join(format!("random-{hardened}{level}"));
        let flags = ["-O2", level, "-w", "-ftrivial-auto-var-init=zero"];
        let flags = flags.map(|flag| if flag.is_empty() { "-O2" } else { flag });
        build(
            compiler(hardened, false),
            &flags,
            std::slice::from_ref(&source),
            &out,
        )?;
        let ran = run(&out, &[])?;
        let same = golden.get_or_insert_with(|| ran.stdout.clone()) == &ran.stdout;
        if !same || !ran.status.success() || !ran.stderr.is_empty() {
            return Err(format!(
                "seed {seed}, hardened {hardened} {level}: {}, the same output: {same}\n{}",
                ran.status,
                String::from_utf8_lossy(&ran.stderr)
            )
            .into());
        }
    }
    Bench::get().passed(&dir);
    Ok(())
}

/// Error isolation (Section 4 of the paper): whatever one value becomes in one run of one event, what leaves is what the plain
/// program says, or the beginning of it, before the program is stopped by name.
fn error_isolation(seed: u64) -> Result<(), Failed> {
    const RUNS: u64 = 60;
    let dir = Bench::get().case_dir(&format!("harden-isolation-{seed}"));
    let source = dir.join("struck.c");
    let (text, places) = random_text(seed, true);
    std::fs::write(&source, text)?;
    let (plain, hardened) = (dir.join("plain"), dir.join("hardened"));
    let flags = ["-O2", "-w"];
    for (compiler, out) in [
        (compiler(false, false), &plain),
        (compiler(true, false), &hardened),
    ] {
        build(compiler, &flags, std::slice::from_ref(&source), out)?;
    }
    let golden = run(&plain, &[])?;
    let mut dice = Dice(seed ^ 0xfa17);
    let mut stopped = 0;
    for _ in 0..RUNS {
        let (place, in_run, event) = (dice.below(places), 1 + dice.below(2), dice.below(400));
        let mask = format!("{:x}", 1_u64 << dice.below(64));
        let words = [
            place.to_string(),
            in_run.to_string(),
            event.to_string(),
            mask,
        ];
        let ran = run(&hardened, &words.each_ref().map(String::as_str))?;
        let masked = ran.status.success() && ran.stdout == golden.stdout && ran.stderr.is_empty();
        let isolated = ran.status.code() == Some(122)
            && golden.stdout.starts_with(&ran.stdout)
            && String::from_utf8_lossy(&ran.stderr).contains("handler handle (");
        if !masked && !isolated {
            let said = String::from_utf8_lossy(&ran.stderr);
            return Err(format!(
                "seed {seed}, struck {}: {}\n{said}",
                words.join(" "),
                ran.status
            )
            .into());
        }
        stopped += u64::from(isolated);
    }
    // Otherwise nothing was struck.
    if stopped < RUNS / 10 {
        return Err(format!("seed {seed}: {stopped} of {RUNS} strikes were noticed").into());
    }
    Bench::get().passed(&dir);
    Ok(())
}

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for seed in 1..=if all() { 8 } else { 3 } {
        trials.push(Trial::test(
            format!("harden::accuracy::{seed}"),
            move || random_program(seed),
        ));
        trials.push(Trial::test(
            format!("harden::error_isolation::{seed}"),
            move || error_isolation(seed),
        ));
    }
    trials
}
