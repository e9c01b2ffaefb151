//! Real programs, exactly as Debian ships them, on inputs that are made here and equal everywhere.
//!
//! Each row is one process; programs that would start a second one are asserted to be refused. Inputs
//! are small: the point is the breadth of system calls, libraries and code shapes, not time.
//!
//! Not covered: programs with children (shells that fork, make, gcc's driver), servers.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::bench::{Bench, workspace, write_executable};
use crate::build::{self, Variant};
use crate::check::{Case, Expect};
use crate::packages;
use crate::run::Stdin;
use crate::sample::sample_text;
use crate::scripts::{SCRIPTS, Script};
use crate::trial::Trial;

/// One way to run one program.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    label: &'static str,
    program: &'static str,
    args: Vec<String>,
    stdin: Input,
    inputs: Vec<Input>,
    bare: &'static str,
    expect: Expect,
    replicas: &'static [u8],
}

/// Something to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Nothing,
    /// Prose, 300 KB.
    Text,
    /// Few lines of numbers and words.
    Table,
    /// Bytes without pattern.
    Noise,
    /// The prose, compressed by the program named.
    Bz2,
    Gz,
    Xz,
    Tar,
    /// A C file, preprocessed.
    CSource,
    /// What the compiler makes of it.
    Assembly,
    /// And the assembler.
    Object,
    /// A JSON document.
    Json,
    Perl,
    Python,
    Lua,
    Ruby,
    Sql,
    /// The same, kept in a write-ahead log with an index that is mapped shared.
    Wal,
    Awk,
    Diff,
    /// Commands for whatever reads them.
    Script(&'static str),
}

fn row(label: &'static str, program: &'static str, args: &[&str]) -> Row {
    Row {
        label,
        program,
        args: args.iter().map(|&a| a.to_owned()).collect(),
        stdin: Input::Nothing,
        inputs: Vec::new(),
        bare: "status 0",
        expect: Expect::Supported,
        replicas: &[2, 3],
    }
}

impl Row {
    const fn stdin(mut self, input: Input) -> Self {
        self.stdin = input;
        self
    }

    fn with(mut self, inputs: &[Input]) -> Self {
        self.inputs = inputs.to_vec();
        self
    }

    const fn ends(mut self, bare: &'static str) -> Self {
        self.bare = bare;
        self
    }

    const fn expect(mut self, expect: Expect) -> Self {
        self.expect = expect;
        self
    }

    /// Under every number of replicas, not two and three alone.
    const fn widely(mut self) -> Self {
        self.replicas = &[1, 2, 3, 5];
        self
    }

    fn name(&self) -> String {
        format!("programs::{}", self.label)
    }

    /// The case; makes its inputs.
    pub(crate) fn case(&self) -> Result<Case, String> {
        let mut case = Case::new(self.name(), packages::program(self.program)?);
        case.invocation.args.clone_from(&self.args);
        case.invocation.stdin = match self.stdin {
            Input::Nothing => Stdin::Null,
            Input::Script(text) => Stdin::Bytes(text.as_bytes().to_vec()),
            input => Stdin::File(input.file()?),
        };
        case.inputs = self
            .inputs
            .iter()
            .map(|input| input.file())
            .collect::<Result<_, _>>()?;
        self.bare.clone_into(&mut case.bare);
        case.expect = self.expect;
        case.replicas = self.replicas.to_vec();
        Ok(case)
    }
}

const CC1: &str = "/usr/lib/gcc/x86_64-linux-gnu/12/cc1";

#[rustfmt::skip]
fn rows() -> Vec<Row> {
    use Input::{Assembly, Awk, Bz2, CSource, Diff, Gz, Json, Lua, Noise, Object, Perl, Python, Ruby, Script, Sql, Table, Tar, Text, Wal, Xz};
    vec![
        // Compressors; bzip2's own check is that -1, -2 and -3 of its samples come back, -ds included.
        row("bzip2", "/usr/bin/bzip2", &["-9", "-c"]).stdin(Text).widely(),
        row("bzip2_file", "/usr/bin/bzip2", &["-1", "-k", "-v", "text"]).with(&[Text]),
        row("bzip2_two", "/usr/bin/bzip2", &["-2", "text", "noise"]).with(&[Text, Noise]),
        row("bzip2_three", "/usr/bin/bzip2", &["-3"]).stdin(Noise),
        row("bunzip2", "/usr/bin/bzip2", &["-d"]).stdin(Bz2).widely(),
        row("bunzip2_small", "/usr/bin/bzip2", &["-ds"]).stdin(Bz2),
        row("bzip2_test", "/usr/bin/bzip2", &["-tvv", "text.bz2"]).with(&[Bz2]),
        row("bzip2_broken", "/usr/bin/bzip2", &["-d", "-c"]).stdin(Noise).ends("status 2"),
        row("gzip", "/usr/bin/gzip", &["-9", "-n", "-c"]).stdin(Text).widely(),
        row("gzip_file", "/usr/bin/gzip", &["-n", "-k", "noise"]).with(&[Noise]),
        row("gunzip", "/usr/bin/gzip", &["-d", "-c"]).stdin(Gz),
        row("xz", "/usr/bin/xz", &["-T1", "-1", "-c"]).stdin(Text).widely(),
        row("unxz", "/usr/bin/xz", &["-d", "-T1", "-c"]).stdin(Xz),
        row("xz_threads", "/usr/bin/xz", &["-T2", "--block-size=65536", "-c"]).stdin(Text),
        row("zstd_threads", "/usr/bin/zstd", &["-T2", "-B512K", "-q", "-c"]).stdin(Text),
        row("zstd", "/usr/bin/zstd", &["--single-thread", "--no-asyncio", "-q", "-c"]).stdin(Text),
        row("zip", "/usr/bin/zip", &["-X", "-q", "-", "-"]).stdin(Script("stored by name only\n")).expect(Expect::Random), // holds the time of day
        // Digests.
        row("sha256sum", "/usr/bin/sha256sum", &["text", "noise"]).with(&[Text, Noise]).widely(),
        row("sha512sum", "/usr/bin/sha512sum", &[]).stdin(Noise),
        row("md5sum", "/usr/bin/md5sum", &["-b"]).stdin(Text),
        row("b2sum", "/usr/bin/b2sum", &[]).stdin(Text),
        row("cksum", "/usr/bin/cksum", &["text"]).with(&[Text]),
        row("sum", "/usr/bin/sum", &[]).stdin(Noise),
        row("openssl_dgst", "/usr/bin/openssl", &["dgst", "-sha3-256"]).stdin(Text).widely(),
        row("openssl_enc", "/usr/bin/openssl", &["enc", "-aes-256-ctr", "-K", "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff", "-iv", "0102030405060708090a0b0c0d0e0f10"]).stdin(Noise),
        row("openssl_rand", "/usr/bin/openssl", &["rand", "-hex", "32"]).expect(Expect::Random),
        row("openssl_prime", "/usr/bin/openssl", &["prime", "170141183460469231731687303715884105727"]),
        row("openssl_genpkey", "/usr/bin/openssl", &["genpkey", "-algorithm", "ED25519"]).expect(Expect::Random),
        // Text tools.
        row("sort", "/usr/bin/sort", &["--parallel=1"]).stdin(Text).widely(),
        row("sort_external", "/usr/bin/sort", &["--parallel=1", "-S", "64k", "-T", ".", "-u"]).stdin(Text),
        row("grep", "/usr/bin/grep", &["-nE", "(leader|core).*[0-9]+"]).stdin(Text).widely(),
        row("grep_none", "/usr/bin/grep", &["absent"]).stdin(Text).ends("status 1"),
        row("grep_count", "/usr/bin/grep", &["-c", "-i", "vote", "text", "missing"]).with(&[Text]).ends("status 2"),
        row("sed", "/usr/bin/sed", &["-E", "s/(replica) ([a-z]+)/\\2 \\1/g; /never/d; $!N; P; D"]).stdin(Text).widely(),
        row("sed_in_place", "/usr/bin/sed", &["-i.old", "s/byte/BYTE/", "text"]).with(&[Text]),
        row("mawk", "/usr/bin/mawk", &["-f", "program.awk"]).stdin(Text).with(&[Awk]).widely(),
        row("gawk", "/usr/bin/gawk", &["-f", "program.awk"]).stdin(Text).with(&[Awk]),
        row("tr", "/usr/bin/tr", &["a-z", "A-Z"]).stdin(Text),
        row("cut", "/usr/bin/cut", &["-d ", "-f2,4"]).stdin(Text),
        row("uniq", "/usr/bin/uniq", &["-c"]).stdin(Text),
        row("wc", "/usr/bin/wc", &[]).stdin(Text),
        row("nl", "/usr/bin/nl", &["-ba"]).stdin(Text),
        row("tac", "/usr/bin/tac", &["text"]).with(&[Text]),
        row("head", "/usr/bin/head", &["-c", "12345"]).stdin(Text),
        row("tail", "/usr/bin/tail", &["-n", "33", "text"]).with(&[Text]),
        row("cat", "/bin/cat", &["text", "-", "noise"]).with(&[Text, Noise]).stdin(Table).widely(),
        row("fold", "/usr/bin/fold", &["-w", "40", "-s"]).stdin(Text),
        row("fmt", "/usr/bin/fmt", &["-w", "60"]).stdin(Text),
        row("join", "/usr/bin/join", &["table", "table"]).with(&[Table]),
        row("paste", "/usr/bin/paste", &["table", "text"]).with(&[Table, Text]),
        row("comm", "/usr/bin/comm", &["table", "table"]).with(&[Table]),
        row("shuf", "/usr/bin/shuf", &["--random-source=noise", "text"]).with(&[Noise, Text]),
        row("shuf_random", "/usr/bin/shuf", &["-i", "1-1000"]).expect(Expect::Random),
        row("split", "/usr/bin/split", &["-b", "70000", "noise"]).with(&[Noise]),
        row("diff", "/usr/bin/diff", &["-u", "--label=a", "--label=b", "text", "table"]).with(&[Text, Table]).ends("status 1"),
        row("cmp", "/usr/bin/cmp", &["text", "noise"]).with(&[Text, Noise]).ends("status 1"),
        row("patch", "/usr/bin/patch", &["table", "table.diff"]).with(&[Table, Diff]),
        row("ed", "/usr/bin/ed", &["-s", "table"]).with(&[Table]).stdin(Script("2d\n1,$s/row/line/\nw\nq\n")),
        row("m4", "/usr/bin/m4", &[]).stdin(Script("define(`fib',`ifelse(eval($1<2),1,$1,`eval(fib(eval($1-1))+fib(eval($1-2)))')')fib(12)\n")),
        row("od", "/usr/bin/od", &["-A", "x", "-t", "x1z"]).stdin(Noise),
        row("xxd", "/usr/bin/xxd", &["noise"]).with(&[Noise]),
        row("base64", "/usr/bin/base64", &[]).stdin(Noise),
        row("factor", "/usr/bin/factor", &["1000000007000000049", "982451653"]),
        row("seq", "/usr/bin/seq", &["-w", "1", "20000"]),
        row("expr", "/usr/bin/expr", &["6", "*", "7"]),
        row("bc", "/usr/bin/bc", &["-l", "-q"]).stdin(Script("scale=300\n4*a(1)\nfor(i=0;i<50;i++){2^i}\nquit\n")).widely(),
        row("dc", "/usr/bin/dc", &[]).stdin(Script("100k 2v p [la 1+ d sa p 20>b]sb 0sa lbx\n")),
        // Files.
        row("tar_create", "/usr/bin/tar", &["--sort=name", "--mtime=@0", "--owner=0", "--group=0", "-cf", "out.tar", "text", "table", "noise"]).with(&[Text, Table, Noise]).widely(),
        row("tar_extract", "/usr/bin/tar", &["-xvf", "files.tar"]).with(&[Tar]),
        row("tar_list", "/usr/bin/tar", &["-tf", "files.tar"]).with(&[Tar]),
        row("cp", "/bin/cp", &["-p", "noise", "copy"]).with(&[Noise]),
        row("mv", "/bin/mv", &["text", "moved"]).with(&[Text]),
        row("rm", "/bin/rm", &["-v", "text", "table"]).with(&[Text, Table]),
        row("ln", "/bin/ln", &["-s", "text", "link"]).with(&[Text]),
        row("mkdir", "/bin/mkdir", &["-p", "-m", "750", "a/b/c"]),
        row("touch", "/bin/touch", &["-d", "@1000000000", "stamped"]),
        row("truncate", "/usr/bin/truncate", &["-s", "1234567", "sparse"]),
        row("dd", "/bin/dd", &["if=noise", "of=out", "bs=1000", "count=77", "status=none"]).with(&[Noise]),
        row("ls", "/bin/ls", &["-1", "-a", "--time-style=+", "-s"]).with(&[Text, Table]),
        row("find", "/usr/bin/find", &[".", "-type", "f", "-size", "+1k", "-name", "t*"]).with(&[Text, Table]),
        row("stat", "/usr/bin/stat", &["-c", "%n %s %A %F", "text"]).with(&[Text]),
        row("file", "/usr/bin/file", &["-b", "text", "files.tar"]).with(&[Text, Tar]),
        row("tee", "/usr/bin/tee", &["one", "two"]).stdin(Text),
        row("cat_missing", "/bin/cat", &["missing"]).ends("status 1"),
        // Small things with a view on the system.
        row("date", "/bin/date", &["-u", "-d", "@1700000000", "+%F %T"]),
        row("env", "/usr/bin/env", &["-i"]),
        row("printf", "/usr/bin/printf", &["%05d|%-6s|%x\\n", "42", "ab", "255"]),
        row("id", "/usr/bin/id", &[]),
        row("uname", "/bin/uname", &["-srm"]),
        row("nproc", "/usr/bin/nproc", &[]),
        row("pwd", "/bin/pwd", &[]),
        row("tty", "/usr/bin/tty", &[]).ends("status 1"),
        row("sleep", "/bin/sleep", &["0.05"]),
        row("true", "/bin/true", &[]).widely(),
        row("false", "/bin/false", &[]).ends("status 1"),
        row("head_of_proc", "/usr/bin/head", &["-n", "5", "/proc/self/status"]).expect(Expect::Random), // pid in it
        // Interpreters.
        row("perl", "/usr/bin/perl", &["program.pl"]).stdin(Text).with(&[Perl]).widely(),
        row("python", "/usr/bin/python3", &["-S", "-E", "-B", "program.py"]).stdin(Text).with(&[Python]).widely(),
        row("python_pool", "/usr/bin/python3", &["-S", "-E", "-B", "-c", POOL]),
        row("lua", "/usr/bin/lua5.4", &["program.lua"]).stdin(Text).with(&[Lua]).widely(),
        row("ruby", "/usr/bin/ruby", &["--disable-gems", "program.rb"]).stdin(Text).with(&[Ruby]).expect(Expect::Limit("its runtime may start a timer thread")),
        row("dash", "/bin/dash", &[]).stdin(Script("i=0; while [ $i -lt 200 ]; do i=$((i+1)); case $i in *7) echo \"seven $i\" ;; esac; done; read x </dev/null || echo end; exit 3\n")).ends("status 3").widely(),
        row("bash", "/bin/bash", &["--norc"]).stdin(Script("declare -A m; for i in {1..100}; do m[$((i % 7))]+=\"$i \"; done; echo \"${m[3]}\"; printf '%s\\n' \"${!m[@]}\" | cat >/dev/null\n")),
        row("bash_builtins", "/bin/bash", &["--norc"]).stdin(Script("declare -A m; for i in {1..300}; do m[$((i % 7))]+=\"$i \"; done; echo \"${m[3]}\"; [[ abc =~ b(.) ]] && echo \"${BASH_REMATCH[1]}\"\n")),
        row("sqlite3", "/usr/bin/sqlite3", &["-batch", "data.db"]).stdin(Sql).widely(),
        row("sqlite3_wal", "/usr/bin/sqlite3", &["-batch", "data.db"]).stdin(Wal).widely(),
        row("sqlite3_memory", "/usr/bin/sqlite3", &["-batch", ":memory:"]).stdin(Sql),
        row("jq", "/usr/bin/jq", &["-S", "[.rows[] | select(.n % 3 == 0) | {k: .name, v: (.n * .n)}] | sort_by(.k)"]).stdin(Json).widely(),
        // Static.
        row("busybox_sha", "/bin/busybox", &["sha256sum", "noise"]).with(&[Noise]).widely(),
        row("busybox_awk", "/bin/busybox", &["awk", "{ for (i = 1; i <= NF; i++) n[$i]++ } END { for (w in n) if (n[w] > b || n[w] == b && w < k) { b = n[w]; k = w } print k, b }", "text"]).with(&[Text]).widely(),
        row("busybox_gzip", "/bin/busybox", &["gzip", "-d", "-c"]).stdin(Gz),
        row("busybox_sh", "/bin/busybox", &["ash"]).stdin(Script("i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo $i; done\n")),
        row("busybox_sed", "/bin/busybox", &["sed", "-n", "s/leader/&&/p"]).stdin(Text),
        // Compiler, assembler, linker and what reads their files.
        row("cc1", CC1, &["-quiet", "-O2", "-fpreprocessed", "source.i", "-o", "out.s"]).with(&[CSource]).widely(),
        row("cc1_to_stdout", CC1, &["-quiet", "-O0", "-g", "-fpreprocessed", "source.i", "-o", "-"]).with(&[CSource]),
        row("as", "/usr/bin/as", &["source.s", "-o", "out.o"]).with(&[Assembly]).widely(),
        row("ld_gold", "/usr/bin/ld.gold", &["-r", "source.o", "-o", "out.o"]).with(&[Object]).widely(),
        row("ld", "/usr/bin/ld", &["-r", "source.o", "-o", "out.o"]).with(&[Object]),
        row("objdump", "/usr/bin/objdump", &["-d", "-r", "source.o"]).with(&[Object]).widely(),
        row("readelf", "/usr/bin/readelf", &["-a", "-W", "source.o"]).with(&[Object]),
        row("nm", "/usr/bin/nm", &["source.o"]).with(&[Object]),
        row("strip", "/usr/bin/strip", &["-o", "stripped.o", "source.o"]).with(&[Object]),
        row("objcopy", "/usr/bin/objcopy", &["-O", "binary", "source.o", "flat"]).with(&[Object]),
        row("ar", "/usr/bin/ar", &["Drcs", "lib.a", "source.o"]).with(&[Object]),
        row("strings", "/usr/bin/strings", &["-n", "4", "source.o"]).with(&[Object]),
    ]
}

impl Input {
    const fn name(self) -> &'static str {
        match self {
            Self::Nothing | Self::Script(_) => "",
            Self::Text => "text",
            Self::Table => "table",
            Self::Noise => "noise",
            Self::Bz2 => "text.bz2",
            Self::Gz => "text.gz",
            Self::Xz => "text.xz",
            Self::Tar => "files.tar",
            Self::CSource => "source.i",
            Self::Assembly => "source.s",
            Self::Object => "source.o",
            Self::Json => "rows.json",
            Self::Perl => "program.pl",
            Self::Python => "program.py",
            Self::Lua => "program.lua",
            Self::Ruby => "program.rb",
            Self::Sql => "script.sql",
            Self::Wal => "wal.sql",
            Self::Awk => "program.awk",
            Self::Diff => "table.diff",
        }
    }

    fn file(self) -> Result<PathBuf, String> {
        static ALL: OnceLock<Result<PathBuf, String>> = OnceLock::new();
        let dir = ALL.get_or_init(make_inputs).clone()?;
        Ok(dir.join(self.name()))
    }
}

const TEXT_BYTES: usize = 300_000;

/// Makes every input, with the bare programs; once for all cases.
fn make_inputs() -> Result<PathBuf, String> {
    let dir = Bench::get().case_dir("inputs");
    let put = |input: Input, bytes: &[u8]| {
        fs::write(dir.join(input.name()), bytes)
            .map_err(|error| format!("{}: {error}", input.name()))
    };
    put(Input::Text, &sample_text(TEXT_BYTES))?;
    let mut x = 0x1234_5678_9abc_def1_u64;
    let noise: Vec<u8> = (0..150_000)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x.to_le_bytes()[3]
        })
        .collect();
    put(Input::Noise, &noise)?;
    let table: String = (10..60).map(|i| format!("{i} row {}\n", i * i)).collect();
    put(Input::Table, table.as_bytes())?;
    put(Input::Diff, b"--- table\n+++ table\n@@ -1,3 +1,3 @@\n 10 row 100\n-11 row 121\n+11 changed 121\n 12 row 144\n")?;
    let rows: Vec<String> = (0..2000)
        .map(|i| {
            format!(
                "{{\"name\":\"n{}\",\"n\":{i},\"x\":[{i},null,1.5e3]}}",
                i * 7 % 1009
            )
        })
        .collect();
    put(
        Input::Json,
        format!("{{\"rows\":[{}]}}", rows.join(",")).as_bytes(),
    )?;
    put(Input::Awk, AWK.as_bytes())?;
    put(Input::Perl, PERL.as_bytes())?;
    put(Input::Python, PYTHON.as_bytes())?;
    put(Input::Lua, LUA.as_bytes())?;
    put(Input::Ruby, RUBY.as_bytes())?;
    put(Input::Sql, SQL.as_bytes())?;
    let wal = SQL.replacen("=DELETE;\n", "=WAL;\nDROP TABLE IF EXISTS t;\n", 1);
    put(Input::Wal, wal.as_bytes())?;
    let make = |output: Input, program: &str, args: &[&str], stdout: bool| -> Result<(), String> {
        let to = dir.join(output.name());
        let mut command = Command::new(packages::program(program)?);
        command.args(args).current_dir(&dir).stdin(Stdio::null());
        if stdout {
            command.stdout(
                fs::File::create(&to).map_err(|error| format!("{}: {error}", to.display()))?,
            );
        }
        match command.status() {
            Ok(status) if status.success() => Ok(()),
            other => Err(format!("{command:?}: {other:?}")),
        }
    };
    make(Input::Bz2, "/usr/bin/bzip2", &["-c", "text"], true)?;
    make(Input::Gz, "/usr/bin/gzip", &["-nc", "text"], true)?;
    make(Input::Xz, "/usr/bin/xz", &["-1", "-c", "text"], true)?;
    make(
        Input::Tar,
        "/usr/bin/tar",
        &["--mtime=@0", "-cf", "files.tar", "text", "table", "noise"],
        false,
    )?;
    let source = workspace().join("guests/malloc_stress.c");
    make(
        Input::CSource,
        "/usr/bin/cc",
        &[
            "-E",
            "-P",
            "-D_GNU_SOURCE",
            "-o",
            "source.i",
            &source.display().to_string(),
        ],
        false,
    )?;
    make(
        Input::Assembly,
        "/usr/bin/cc",
        &["-S", "-O2", "-o", "source.s", "source.i"],
        false,
    )?;
    make(
        Input::Object,
        "/usr/bin/cc",
        &["-c", "-O2", "-o", "source.o", "source.i"],
        false,
    )?;
    Ok(dir)
}

const AWK: &str = r#"{ for (i = 1; i <= NF; i++) n[$i]++ }
END { for (w in n) if (n[w] > best || (n[w] == best && w < word)) { best = n[w]; word = w } printf "%s %d %.6f\n", word, best, sin(best) + log(NR) }
"#;

/// Hash order is random: it goes where replicas compare it, what is printed is sorted.
const PERL: &str = r#"use strict; use warnings;
my %n; my $l = 0;
while (<STDIN>) { $l++; $n{$_}++ for split }
open my $null, '>', '/dev/null' or die; print $null join(',', keys %n), $$, time, rand; close $null;
printf "%-10s %5d\n", $_, $n{$_} for sort { $n{$b} <=> $n{$a} || $a cmp $b } keys %n;
my $s = join '', map { chr(97 + $_ % 26) } 1 .. 5000; $s =~ s/(b.*?d)/<$1>/g;
print length $s, " ", $s =~ tr/<//, " $l lines\n";
open my $f, '>', 'out.txt' or die; print $f sprintf("%.10f\n", exp(1) ** 2); close $f;
eval { die { code => 7 } }; print "died with $@->{code}\n"; local $SIG{ALRM} = sub { print "alarm\n" }; alarm 1; select undef, undef, undef, 5;
exit 0;
"#;

const PYTHON: &str = r#"import sys, time, gc
words = sys.stdin.read().split()
n = {}
for w in words:
    n[w] = n.get(w, 0) + 1
with open('/dev/null', 'w') as f:
    f.write(repr(set(words)) + repr(id(n)) + repr(time.time()) + repr(hash('seeded')))
for w in sorted(n, key=lambda w: (-n[w], w)):
    print(f'{w:10} {n[w]:5}')
def primes(limit):
    sieve = bytearray([1]) * limit
    for i in range(2, int(limit ** .5) + 1):
        if sieve[i]:
            sieve[i * i::i] = bytes(len(range(i * i, limit, i)))
    return sum(sieve) - 2
print(primes(200000), 2 ** 521 % 1000000007, gc.collect() >= 0)
try:
    {}['missing']
except KeyError as e:
    print('caught', e)
with open('out.txt', 'w') as f:
    print(*range(10), file=f)
sys.exit(5 - 5)
"#;

/// Processes that share memory, and have threads.
const POOL: &str = r#"import multiprocessing, concurrent.futures
def square(x): return x * x
def put(queue):
    for i in range(50): queue.put(i)
with multiprocessing.Pool(2) as pool:
    print(sum(pool.map(square, range(200))), pool.apply_async(pow, (3, 5)).get(), list(pool.imap(square, range(9))))
queue = multiprocessing.Queue()
child = multiprocessing.Process(target=put, args=(queue,))
child.start()
print(sum(queue.get() for i in range(50)))
child.join()
with concurrent.futures.ProcessPoolExecutor(2) as pool:
    print(list(pool.map(square, range(20))))
for method in "spawn", "forkserver":
    with multiprocessing.get_context(method).Pool(2) as pool: print(pool.map(abs, range(-9, 9)))
"#;

const LUA: &str = r#"local n = {}
for line in io.lines() do for w in line:gmatch("%S+") do n[w] = (n[w] or 0) + 1 end end
local keys = {}
for w in pairs(n) do keys[#keys + 1] = w end
local sink = io.open("/dev/null", "w"); sink:write(tostring(n), table.concat(keys, ","), os.time(), os.clock()); sink:close()
table.sort(keys)
for _, w in ipairs(keys) do print(w, n[w]) end
print(pcall(error, { 1 }) == false, string.format("%.14g", math.pi * 1e6), #string.rep("ab", 5000))
local out = io.open("out.txt", "w"); out:write("done\n"); out:close()
"#;

const RUBY: &str = r#"n = Hash.new(0)
STDIN.each_line { |l| l.split.each { |w| n[w] += 1 } }
File.write('/dev/null', n.object_id.to_s + 'x'.hash.to_s + Time.now.to_s)
n.sort_by { |w, c| [-c, w] }.each { |w, c| puts format('%-10s %5d', w, c) }
puts (1..200).inject(:*).to_s.length
begin; raise ArgumentError, 'raised'; rescue => e; puts e.message; end
File.write('out.txt', "done\n")
"#;

const SQL: &str = "PRAGMA journal_mode=DELETE;
CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, v REAL);
BEGIN;
WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<3000) INSERT INTO t SELECT x, 'n'||(x*7919%3001), x*0.5 FROM c;
COMMIT;
CREATE INDEX i ON t(name);
SELECT count(*), sum(v), min(name) FROM t WHERE name LIKE 'n1%';
UPDATE t SET v = v + 1 WHERE id % 3 = 0;
DELETE FROM t WHERE id % 5 = 0;
SELECT name, v FROM t ORDER BY name LIMIT 5;
CREATE TABLE r AS SELECT random() AS a FROM t LIMIT 10; SELECT count(DISTINCT a) FROM r; DROP TABLE r;
VACUUM;
SELECT count(*), total(v) FROM t;
";

/// The row with this label.
pub(crate) fn find(label: &str) -> Row {
    rows()
        .into_iter()
        .find(|row| row.label == label)
        .unwrap_or_else(|| panic!("no row {label}"))
}

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials: Vec<_> = rows()
        .into_iter()
        .map(|row| Trial::test(row.name(), move || row.case()?.check()))
        .collect();
    for &Script { name, text, end } in SCRIPTS {
        trials.push(Trial::test(format!("programs::script_{name}"), move || {
            let dir = Bench::get().case_dir(&format!("script-{name}"));
            let path = dir.join(format!("{name}.script"));
            write_executable(&path, text.as_bytes(), 0o755)?;
            let mut case = Case::new(format!("programs::script_{name}"), path);
            case.invocation.args = vec!["first argument".to_owned(), "second".to_owned()];
            end.clone_into(&mut case.bare);
            case.check()?;
            Bench::get().passed(&dir);
            Ok(())
        }));
    }
    trials.push(Trial::test("programs::by_name", || {
        // Found on PATH, as typed: argv[0] is the bare name.
        let mut case = Case::new("programs::by_name", PathBuf::from("sha256sum"));
        case.invocation.args = vec!["/etc/debian_version".to_owned()];
        case.check()
    }));
    trials.push(Trial::test("programs::relative", || {
        let mut case = Case::new("programs::relative", PathBuf::from("./write_loop"));
        case.inputs = vec![build::guest("write_loop.c", Variant::Dynamic)?];
        case.check()
    }));
    trials.push(Trial::test("programs::interpreter_as_program", || {
        // The dynamic linker given the program, as ldd-like tools do.
        let mut case = Case::new(
            "programs::interpreter_as_program",
            packages::program("/lib64/ld-linux-x86-64.so.2")?,
        );
        case.invocation.args = vec![
            build::guest("write_loop.c", Variant::Dynamic)?
                .display()
                .to_string(),
        ];
        case.check()
    }));
    trials
}
